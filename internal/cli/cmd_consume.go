package cli

import (
	"github.com/spf13/cobra"

	"weir/internal/app"
)

const consumeHelp = `Takes messages from the RabbitMQ queues of the setting intake.rabbitmq into the lanes. It runs
until SIGTERM or SIGINT, then files and acknowledges the deliveries that it has in hand, and ends
with 0. Other processes of Weir deliver the messages to the CMS.

A message is acknowledged after it is durable. Its message_id is the Idempotency-Key. The header
perform_job_at (seconds since 1970, as a number) or Weir-Deliver-At is its due time. An invalid
message goes to intake.rabbitmq.deadLetterExchange with its problems in the header
x-weir-problems; without that setting it is rejected.

The command waits for storage and broker, and logs JSON to stdout, errors to stderr. It ends with
1 if a setting is wrong, and with 200 if the number of lanes has changed: start it again with the
new setting. docs/rabbitmq.md describes the set-up.`

func newConsumeCommand(s *console) *cobra.Command {
	return &cobra.Command{Use: "consume", Short: "Take messages from RabbitMQ into the lanes",
		Long: consumeHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return asFailure(app.Consume(cmd.Context(),
				app.Process{Env: s.env, Stdout: s.stdout, Stderr: s.stderr,
					StartedAt: s.startedAt}), true)
		}}
}
