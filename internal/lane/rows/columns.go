package rows

// Columns of a message, m_.
const (
	Nonce                Text         = "Nonce"  // random part of its id; in tail the nonce of the holder
	Origin               Text         = "Origin" // id in the epoch in which it was accepted; also in k_ and l_ rows
	CopiedFrom           Text         = "From"   // its place in the previous epoch, as in the key of its o_ row
	Contract             Text         = "Contract"
	Key                  Text         = "Key" // ordering key; in b_ rows its hash
	Version              Text         = "Version"
	Supersede            Bool         = "Supersede"
	Skip                 Bool         = "Skip" // onFailure: skip
	ContentType          Text         = "ContentType"
	TraceParent          Text         = "TraceParent"
	TraceState           Text         = "TraceState"
	Callback             Text         = "Callback"
	Batch                Text         = "Batch" // id of the batch that it is a part of
	BatchPart            Int          = "Part"  // its place in the batch
	DueAt                Time         = "DueAt"
	AcceptedAt           Time         = "AcceptedAt"
	Size                 Int          = "Size"      // of the body, in bytes
	Body                 Bytes        = "Body"      // compressed; also of an event, as it is sent
	Blob                 Text         = "Blob"      // name of the blob with the body, if it is too large for a row
	IdempotencyRow       Text         = "Idem"      // key of its i_ row
	MovedIdempotencyRow  Text         = "MovedIdem" // of a copy: key of the i_ row in the epoch that accepted it
	Stage                Text         = "Stage"
	Attempts             Packed       = "Attempts" // JSON
	AttemptCount         Int          = "AttemptCount"
	AttemptsBeforeReplay Int          = "Base"
	LastError            Text         = "LastError" // also in tail: of the last attempt that did not deliver
	CMSStatus            Int          = "CMSStatus"
	NextAttemptAt        ErasableTime = "NextAttemptAt"
	FinishedAt           ErasableTime = "FinishedAt"
	SupersededBy         Text         = "SupersededBy" // an id
	IsHeld               Bool         = "Held"         // it has an r_ row
	OrderPos             Text         = "Place"        // in its key's order, if it is not its sequence number
	Replays              Int          = "Replays"
	ReplayAskedAt        ErasableTime = "ReplayAskedAt"
	ReplayForced         Bool         = "ReplayForced"
	ReplayRefused        Text         = "ReplayRefused" // the reason
	ReplayNonce          Text         = "ReplayNonce"   // of the last request for a replay
	ReplayBlockedBy      Text         = "Late"          // id of a later delivery in an earlier epoch, or "unknown"
	EditedAt             ErasableTime = "EditedAt"
	EditedBody           Bytes        = "Edited"
	EditedBlob           Text         = "EditedBlob"
	EditedType           Text         = "EditedType"
	EditedVersion        Text         = "EditedVersion"
	EditedSize           Int          = "EditedSize"
	EditNote             Text         = "EditNote"
	Edition              Int          = "Edition"
	DiscardedAt          Time         = "DiscardedAt"    // set = it is discarded; its stage is stored as cancelled
	DiscardAskedAt       Time         = "DiscardAskedAt" // time of the first request to discard it
	DiscardReason        Text         = "DiscardReason"  // also in the request
	CancelNonce          Text         = "CancelNonce"    // of the call that cancelled it while it was scheduled
	MoveNonce            Text         = "MoveNonce"      // of the call that changed its due time last
	ErasedAt             ErasableTime = "ErasedAt"       // when its content was erased; also in k_ rows
	IsBeingRemoved       Bool         = "Removing"       // retention has begun to remove its body
	Shown                Text         = "Shown"          // JSON: values of the body for lists, by name
	EditedShown          Text         = "EditedShown"    // as Shown, of the edited body
	Upstream             Text         = "Upstream"       // name of the upstream that sent it
	VersionWarning       Text         = "VersionWarning" // why its version, or the superseding one, is beyond reason
)

// Columns of several rows that refer to a message.
const (
	Seq      Int  = "Seq"      // sequence number; in !swept, how far retention has come
	BodyHash Text = "BodyHash" // only in i_: hash of the body that was posted with the idempotency key
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
	Cancelled       Int  = "Cancelled" // with the discarded ones, which are also in !sums
	Superseded      Int  = "Superseded"
	Moved           Int  = "Moved"
	NextDueAt       Time = "NextDue"
	NextUntriedAt   Time = "NextUntried"
	LastReleasedAt  Time = "Placed"
	RequestsSeen    Int  = "TouchedSeen"
	PausedUntil     Time = "PausedUntil"
	PauseReason     Text = "PauseReason"
	PauseCount      Int  = "Pauses"
	RefusingSince   Time = "Refusing"
	ProbedBelow     Int  = "Probed"
	SettleUntil     Time = "SettleUntil"
	NextAllowedAt   Time = "RateNext"
	Holder          Text = "Holder"
	LastErrorAt     Time = "LastErrorAt"
	IsOpen          Bool = "Open"
	Crashes         Int  = "Crashes"
	InFlightSeq     Int  = "Trying"
	InFlightCrashes Int  = "TryingCrashes"
	InFlightFence   Int  = "TryingFence"
	IsClosed        Bool = "Closed"
	MovedRecorded   Bool = "Booked"
	SentBelow       Int  = "Taken"
	HistoryFence    Int  = "Watched"
)

// Discarded is the column of further counters, !sums.
const Discarded Int = "Discarded"

// Columns of a block, b_. Their meanings are in lane.KeyBlock.
const (
	NextAt       Time = "Next"
	HeldCount    Int  = "Held"
	LogWaitsFrom Int  = "Ahead"
	IsParked     Bool = "Shelved"
	ReleasedAt   Time = "Placed"
	IsUntried    Bool = "Untried"
)

// Columns of a held message, r_. Their meanings are in lane.HeldMessage.
const (
	WasTried    Bool = "Tried"
	WasReplayed Bool = "Again"
)

// RememberedID is the column of a remembered id, c_.
const RememberedID Text = "Remembered" // of the item in the CMS

// Columns of the list row of a dead message, x_. Reason is also a column of a pause.
const (
	DiedAt Time = "DiedAt" // also of a discarded message
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

// Columns of the state of the lane's own events, !mailed.
const (
	PausedSince     Time = "Paused"
	PausedReceivers Text = "PausedTo" // names, separated by spaces
	BehindReceivers Text = "BehindTo" // names, separated by spaces
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

// Columns of retention, !swept.
const (
	WalkStartedAt Time = "StartedAt"
	WalkNextAt    Time = "NextAt"
)

// Columns of the record of epochs, meta/lanes.
const (
	Epoch         Int  = "Epoch"
	Lanes         Int  = "Lanes"
	Step          Text = "Step"
	NextEpoch     Int  = "NextEpoch"
	NextLanes     Int  = "NextLanes"
	UsedEpochs    Int  = "Used"
	EarlierEpochs Text = "Earlier" // JSON
)

// Columns of the search for forgotten bodies, meta/forgotten.
const (
	LastDay      Text = "Day"
	DayMarker    Text = "Marker"
	DaysToRepeat Text = "Again" // days, separated by spaces
	SinceDay     Text = "Since"
	ClaimedUntil Time = "ClaimedTo"
)
