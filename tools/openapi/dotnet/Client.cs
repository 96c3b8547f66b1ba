using System;
using System.Linq;
using System.Net.Http;
using System.Threading.Tasks;
using Weir;

// Client uses the generated client as an upstream and an operator would: it posts, waits, reads a status, lists,
// validates, sends a batch, makes a schedule, and gets a typed problem. It ends with an exception if an answer is wrong.
static class Client
{
    static string Article(string path, string title)
    {
        return $"<article path=\"{path}\" version=\"1\"><title>{title}</title></article>";
    }

    static void Check(bool holds, string claim)
    {
        if (!holds) throw new InvalidOperationException("not so: " + claim);
        Console.WriteLine("ok: " + claim);
    }

    static void Main(string[] args)
    {
        Run(new WeirClient(new HttpClient()) { BaseUrl = args[0] }, args[1]).GetAwaiter().GetResult();
    }

    static async Task Run(WeirClient weir, string run)
    {
        string none = null;
        Func<string, string, string, Task<Posted>> send = (key, prefer, body) => weir.SendMessageAsync(key, none, none,
            none, none, none, none, none, none, none, none, prefer, none, none, none, none, body);

        var path = "/" + run;
        var posted = await send(run + "-1", none, Article(path, "Héllo"));
        Check(posted.Id != null && posted.Duplicate == false, "a 202 is returned, not thrown");
        var again = await send(run + "-1", none, Article(path, "Héllo"));
        Check(again.Id == posted.Id && again.Duplicate == true, "a repeat is the same message");
        var waited = await send(run + "-2", "wait=30", Article(path + "/waited", "x"));
        Check(waited.Stage.ToString().ToLower() == "delivered", "a post that waits is delivered: " + waited.Stage);

        var status = await weir.GetMessageAsync(none, null, posted.Id);
        Check(status.Key == path && status.AcceptedAt > DateTimeOffset.Now.AddHours(-1), "a status is typed");
        var found = await weir.FindMessagesAsync(null, path, none, none, null, DateTimeOffset.Now.AddHours(-1), null, none,
            none, none, none, none, null, null, null, null, none, none, null, null, 10, none);
        Check(found.Messages.Single().Id == posted.Id, "a list has the message");

        var validation = await weir.ValidateMessageAsync(Article("/invalid", ""));
        Check(!validation.Valid && validation.Problems.Count == 1, "a validation has its problems");
        var batch = await weir.SendBatchAsync(none, none, none, none, none, none, none, none, null, "/f/article",
            "<f>" + Article("/b/1", "x") + Article("/b/2", "x") + "</f>");
        Check((await weir.GetBatchAsync(batch.Id)).Id == batch.Id, "a batch is accepted: " + batch.State);

        var definition = new ScheduleDefinition { Cron = "@yearly", Message = Article("/s", "x"), Overlap = "queue" };
        var schedule = await weir.PutScheduleAsync(none, none, definition, run);
        Check(schedule.State.NextAt > DateTimeOffset.Now, "a schedule has its next time: " + schedule.State.NextAt);
        await weir.DeleteScheduleAsync(none, run);

        try
        {
            await send(run + "-3", none, Article("/refused", ""));
            Check(false, "a refusal is thrown");
        }
        catch (ApiException<Problem> refused)
        {
            Check(refused.StatusCode == 422 && refused.Result.Problems.First().Line == 1,
                "a refusal is a typed problem with its line: " + refused.Result.Detail);
        }

        Check((await weir.ListLanesAsync(null)).Lanes.Count > 0, "the lanes are typed");
        Check((await weir.HealthAsync()).Status.ToString().ToLower() == "ok", "the health is typed");
        await weir.ListChecksAsync();
        await weir.ListPausesAsync();
    }
}
