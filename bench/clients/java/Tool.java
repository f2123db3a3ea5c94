import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Runs one of Kafka's command-line tools in a process of its own, as its start script would. */
final class Tool {
    private static final int LIMIT_S = 60;

    private Tool() { }

    /** What the tool wrote to standard output; fails when it ends with another status than 0 or not in time. */
    static String run(String main, String input, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                "-Dfile.encoding=UTF-8", "-cp", System.getProperty("java.class.path"), main));
        command.addAll(List.of(arguments));
        Process process = new ProcessBuilder(command).start();
        CompletableFuture<String> output = drain(process.getInputStream());
        CompletableFuture<String> errors = drain(process.getErrorStream());
        try (OutputStream stdin = process.getOutputStream()) {
            stdin.write(input.getBytes(StandardCharsets.UTF_8));
        }
        if (!process.waitFor(LIMIT_S, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            throw new IllegalStateException(main + " did not end in " + LIMIT_S + " s");
        }
        if (process.exitValue() != 0 || errors.get().contains("ERROR")) {
            String said = errors.get() + output.get();
            throw new IllegalStateException(main + " ended with " + process.exitValue() + ": " + said.substring(0, Math.min(300, said.length())));
        }
        return output.get();
    }

    private static CompletableFuture<String> drain(InputStream in) {
        return CompletableFuture.supplyAsync(() -> {
            try {
                ByteArrayOutputStream out = new ByteArrayOutputStream();
                in.transferTo(out);
                return out.toString(StandardCharsets.UTF_8);
            } catch (IOException problem) {
                throw new UncheckedIOException(problem);
            }
        });
    }
}
