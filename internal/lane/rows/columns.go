package rows

// Columns of a message, m_. In their comments, "its" means the message's. Some comments also refer
// to other rows: block (b_), remembered id (c_), idempotency key (i_), newest delivered version
// (k_), last delivery of a key (l_), event (n_), held message (r_).
const (
	// random part of its id; in tail: the nonce of the holder
	Nonce Text = "Nonce"
	// its id in the epoch that accepted it; also in k_ and l_ rows
	Origin Text = "Origin"
	// only in a copy: <epoch>.<lane>.<seq> of the original message
	CopiedFrom  Text = "From"
	Contract    Text = "Contract"
	Key         Text = "Key" // its ordering key; in b_ and s_ rows: the hash of a key
	Version     Text = "Version"
	Supersede   Bool = "Supersede"
	Skip        Bool = "Skip" // its contract has "onFailure: skip"
	ContentType Text = "ContentType"
	TraceParent Text = "TraceParent"
	TraceState  Text = "TraceState"
	Callback    Text = "Callback"
	// id of the batch, if the message is a part of a batch
	Batch      Text = "Batch"
	BatchPart  Int  = "Part" // its place in the batch
	DueAt      Time = "DueAt"
	AcceptedAt Time = "AcceptedAt"
	Size       Int  = "Size" // bytes of its body
	// its compressed body; in n_ rows: the body of the event's request
	Body Bytes = "Body"
	// name of the blob that has its body; empty = there is none
	Blob           Text = "Blob"
	IdempotencyRow Text = "Idem" // key of its i_ row
	// only in a copy: key of its i_ row in the epoch that accepted it
	MovedIdempotencyRow  Text   = "MovedIdem"
	Stage                Text   = "Stage"
	Attempts             Packed = "Attempts" // JSON
	AttemptCount         Int    = "AttemptCount"
	AttemptsBeforeReplay Int    = "Base"
	// in tail: error of the last attempt that did not deliver
	LastError     Text         = "LastError"
	CMSStatus     Int          = "CMSStatus"
	NextAttemptAt ErasableTime = "NextAttemptAt"
	// when its first failed attempt since its last replay began
	FirstFailedAt ErasableTime = "FirstFailedAt"
	// until this time its failed attempts do not make it dead
	RetryUntil   ErasableTime = "RetryUntil"
	FinishedAt   ErasableTime = "FinishedAt"
	SupersededBy Text         = "SupersededBy" // id of the newer message
	IsHeld       Bool         = "Held"         // it has an r_ row
	// its position in its key's order; empty = its sequence number
	OrderPos      Text         = "Place"
	Replays       Int          = "Replays"
	ReplayAskedAt ErasableTime = "ReplayAskedAt"
	ReplayForced  Bool         = "ReplayForced"
	ReplayRefused Text         = "ReplayRefused" // the holder's reason for its refusal
	ReplayNonce   Text         = "ReplayNonce"   // nonce of the last request for a replay
	// id of a delivered later message of its key
	ReplayBlockedBy Text         = "Late"
	EditedAt        ErasableTime = "EditedAt"
	EditedBody      Bytes        = "Edited"
	EditedBlob      Text         = "EditedBlob"
	EditedType      Text         = "EditedType"
	EditedVersion   Text         = "EditedVersion"
	EditedSize      Int          = "EditedSize"
	EditNote        Text         = "EditNote"
	Edition         Int          = "Edition"
	DiscardAskedAt  Time         = "DiscardAskedAt" // time of the first request to discard it
	// also a column of a request to discard (w_)
	DiscardReason Text = "DiscardReason"
	// nonce of the call that cancelled it while it was scheduled
	CancelNonce Text = "CancelNonce"
	// nonce of the last call that changed its due time
	MoveNonce Text = "MoveNonce"
	// time at which its content was erased; also in c_ and k_ rows
	ErasedAt ErasableTime = "ErasedAt"
	// hashes of its erased key, folded; also in c_ and k_ rows
	FoldedHashes   Text = "Folded"
	IsBeingRemoved Bool = "Removing" // retention has begun to remove its body
	// JSON: the values of its body that lists show, by name
	Shown Text = "Shown"
	// JSON: the values of its edited body that lists show, by name
	EditedShown Text = "EditedShown"
	Upstream    Text = "Upstream" // name of the upstream that sent it
	// why its version, or the superseding version, is suspicious
	VersionWarning Text = "VersionWarning"
)

// Columns of rows that refer to a message.
const (
	// sequence number; in the row !swept: retention has checked the log up to this number
	Seq Int = "Seq"
	// only in an i_ row: hash of the body that was posted with the idempotency key
	BodyHash Text = "BodyHash"
)

// Columns of head. Their meanings are in lane.Head.
const (
	NextSeq    Int  = "Next"
	RequestSeq Int  = "Touched"
	IsSealed   Bool = "Sealed"
)

// Columns of tail. Their meanings are in lane.Tail.
const (
	Fence           Int  = "Fence"
	CommitSeq       Int  = "Commit"
	Cursor          Int  = "Cursor"
	Delivered       Int  = "Delivered"
	Dead            Int  = "Dead"
	Cancelled       Int  = "Cancelled"
	Superseded      Int  = "Superseded"
	Discarded       Int  = "Discarded"
	Moved           Int  = "Moved"
	NextDueAt       Time = "NextDue"
	NextUntriedAt   Time = "NextUntried"
	LastReleasedAt  Time = "Placed"
	RequestsSeen    Int  = "TouchedSeen"
	PausedUntil     Time = "PausedUntil"
	PauseReason     Text = "PauseReason"
	PauseCount      Int  = "Pauses"
	PauseCause      Text = "PauseCause"
	RefusingSince   Time = "Refusing"
	ProbedBelow     Int  = "Probed"
	SettleUntil     Time = "SettleUntil"
	Holder          Text = "Holder"
	LastErrorAt     Time = "LastErrorAt"
	LastDeliveredAt Time = "LastDeliveredAt"
	AttemptingID    Text = "Attempting"
	AttemptingSince Time = "AttemptingSince"
	IsOpen          Bool = "Open"
	Crashes         Int  = "Crashes"
	InFlightSeq     Int  = "Trying"
	InFlightCrashes Int  = "TryingCrashes"
	InFlightFence   Int  = "TryingFence"
	IsClosed        Bool = "Closed"
	MovedRecorded   Bool = "Booked"
	SentBelow       Int  = "Taken"
	Brakes          Text = "Brakes" // JSON: rejections for which messages of the lane wait
	// JSON: contracts that the holder's settings lack, and messages that wait for them
	Missing Text = "Missing"
)

// Columns of a block, b_. Their meanings are in lane.KeyBlock.
const (
	NextAt       Time = "Next"
	HeldCount    Int  = "Held"
	LogWaitsFrom Int  = "Ahead"
	IsParked     Bool = "Shelved"
	ReleasedAt   Time = "Placed"
	IsUntried    Bool = "Untried"

	MissingContract Text = "Missing"
	MissingSince    Time = "MissingSince"

	BrakedContract Text = "Braked"
	BrakedBy       Text = "BrakedBy"
)

// Columns of a held message, r_. Their meanings are in lane.HeldMessage.
const (
	WasTried    Bool = "Tried"
	WasReplayed Bool = "Again"
)

// RememberedID is the column of a remembered id, c_: the id of the item in the CMS.
const RememberedID Text = "Remembered"

// Columns of a dead message's row in the list of dead messages, x_. Reason is also a column of a
// pause.
const (
	DiedAt Time = "DiedAt" // also a column of a discarded message
	Reason Text = "Reason"
)

// Columns of packed deliveries, d_.
const (
	FirstSeq       Int   = "First"
	PackedMessages Bytes = "Messages" // compressed JSON
)

// Columns of a request, w_.
const (
	IsDone Bool = "Done"
	Force  Bool = "Force"
)

// Columns of an event, n_, and of the outbox marker.
const (
	EventType     Text = "Type"
	EventAt       Time = "At"
	URL           Text = "URL"
	EventID       Text = "ID"
	EventAttempts Int  = "Tries"
	FirstTriedAt  Time = "Tried"
)

// Columns of !mailed, a marker row. The row records which receivers got an event about the lane's
// present pause or backlog. The meanings of the columns are in outbox.LaneState.
const (
	PausedSince     Time = "Paused"
	PausedReceivers Text = "PausedTo" // names, separated by spaces
	BehindReceivers Text = "BehindTo" // names, separated by spaces
	BrakeReceivers  Text = "BrakesTo" // <name>/<fingerprint>, separated by spaces
)

// Columns of a claim, !heir, and of a pause.
const (
	Claimant Text = "By"
	PausedBy Text = "By"
	Since    Time = "Since"
	Until    Time = "Until"
)

// Columns of a bulk replay, !replay_.
const (
	JobText       Text = "Text"
	JobCheckpoint Text = "Place"
)

// Columns of the state of retention, !swept.
const (
	WalkStartedAt Time = "StartedAt"
	WalkNextAt    Time = "NextAt"
)

// RecoveredAt is a column of the last recovery of the CMS, meta/recovered.
const RecoveredAt Time = "RecoveredAt"

// Columns of the record of epochs, meta/lanes.
const (
	Epoch         Int  = "Epoch"
	Lanes         Int  = "Lanes"
	Step          Text = "Step"
	NextEpoch     Int  = "NextEpoch"
	NextLanes     Int  = "NextLanes"
	Fold          Text = "Fold"     // names of fold.Rules, separated by spaces
	NextFold      Text = "NextFold" // names of fold.Rules, separated by spaces
	UsedEpochs    Int  = "Used"
	EarlierEpochs Text = "Earlier" // JSON
	IsUnused      Bool = "Unused"
	MoveID        Text = "Move"
	MovedTo       Text = "MovedTo"
	Format        Int  = "Format"
)

// Columns of meta/forgotten, the state of the search for blobs to which no row refers.
const (
	LastDay      Text = "Day"
	DayMarker    Text = "Marker"
	DaysToRepeat Text = "Again" // days, separated by spaces
	SinceDay     Text = "Since"
	ClaimedUntil Time = "ClaimedTo"
)
