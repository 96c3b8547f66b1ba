import java.net.URI;
import java.net.http.*;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Set;

public class Sender {
    static final Set<Integer> PASSING = Set.of(0, 408, 429, 500, 502, 503, 504);

    public static void main(String[] args) throws Exception { // address, file with the XML, key of the message
        var client = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(5)).build();
        var request = HttpRequest.newBuilder(URI.create(args[0] + "/api/messages"))
            .timeout(Duration.ofSeconds(15))
            .header("Content-Type", "application/xml")
            .header("Idempotency-Key", args[2]) // the same for each try: then all tries are one message
            .header("Prefer", "wait=5") // shorter than the timeout of a try
            .header("x-functions-key", System.getenv().getOrDefault("WEIR_KEY", ""))
            .POST(HttpRequest.BodyPublishers.ofFile(Path.of(args[1]))) // bytes: nothing changes their encoding
            .build();
        for (int attempt = 1; ; attempt++) {
            int status = 0;
            String text = "no answer";
            double pause = Math.min(Math.pow(2, attempt), 60) * Math.random();
            try {
                var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                status = answer.statusCode();
                text = answer.body();
                pause = answer.headers().firstValue("Retry-After").map(Double::parseDouble).orElse(pause);
            } catch (java.io.IOException e) { // a timeout, or a lost connection: the message may be stored
                text = e.toString();
            }
            if (status == 200 || status == 202) {
                System.out.println(text);
                return;
            }
            if (!PASSING.contains(status) || attempt == 10) throw new IllegalStateException(status + " " + text);
            Thread.sleep((long) (pause * 1000));
        }
    }
}
