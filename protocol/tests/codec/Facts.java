import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;

/** Prints what Kafka's classes say about error codes, header versions and the text of UUIDs, a fact per line. */
public class Facts {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.println("error " + error.code() + " " + error + " " + retriable);
        }
        for (ApiKeys api : ApiKeys.values()) {
            if (!api.hasValidVersion()) continue;
            for (short v = api.oldestVersion(); v <= api.latestVersion(); v++) {
                System.out.println("api " + api.id + " " + v + " " + api.requestHeaderVersion(v) + " "
                    + api.responseHeaderVersion(v) + " " + api.isVersionEnabled(v, false));
            }
        }
        for (long i = 0; i < 64; i++) {
            Uuid id = new Uuid(i * 0x9e3779b97f4a7c15L, ~i * 0xbf58476d1ce4e5b9L);
            System.out.println("uuid " + id.getMostSignificantBits() + " " + id.getLeastSignificantBits() + " " + id);
        }
    }
}
