import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Supplier;
import java.util.stream.Collectors;

import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Apache Kafka's own record classes, asked line by line: one request on a line, one answer on a line.
 *
 *   read HEX                                   the records of every entry, each entry checked first
 *   build MAGIC CODEC APPEND_TIME RECORDS      a record set; APPEND_TIME -1 is CreateTime
 *   down MAGIC FIRST_OFFSET HEX                what an old fetcher would get
 *   validate VERSION BASE NOW CODEC MAGIC TYPE BEFORE AFTER COMPACTED MAX_BYTES HEX
 *                                              what the leader would append: "ok LAST MAX_TIMESTAMP HEX",
 *                                              or "refused CODE INDEX,INDEX..."
 *
 * A record is offset:timestamp:key:value:headers, bytes in hexadecimal, "-" for null, headers as key=value joined by ";".
 */
public class Records {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" ", -1));
            } catch (Throwable error) {
                answer = "error " + error.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static String answer(String[] words) {
        switch (words[0]) {
            case "read":
                return "ok " + read(records(words[1]));
            case "build":
                return "ok " + build(Byte.parseByte(words[1]), compression(words[2]), Long.parseLong(words[3]), words[4]);
            case "down":
                return "ok " + hex(records(words[3])
                    .downConvert(Byte.parseByte(words[1]), Long.parseLong(words[2]), Time.SYSTEM).records());
            case "validate":
                return validate(words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String read(MemoryRecords records) {
        List<String> found = new ArrayList<>();
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                List<String> headers = new ArrayList<>();
                for (Header header : record.headers())
                    headers.add(HEX.formatHex(header.key().getBytes()) + "=" + bytes(header.value()));
                found.add(record.offset() + ":" + record.timestamp() + ":" + bytes(record.key()) + ":"
                    + bytes(record.value()) + ":" + String.join(";", headers));
            }
        }
        return String.join(",", found);
    }

    private static String build(byte magic, Compression compression, long appendTime, String text) {
        TimestampType type = appendTime < 0 ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME;
        String[] lines = text.split(",");
        long base = Long.parseLong(lines[0].split(":")[0]);
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1024), magic, compression, type, base, appendTime);
        for (String line : lines) {
            String[] fields = line.split(":", -1);
            Header[] headers = fields[4].isEmpty() ? Record.EMPTY_HEADERS : java.util.Arrays.stream(fields[4].split(";"))
                .map(pair -> pair.split("=", -1))
                .map(pair -> new RecordHeader(new String(HEX.parseHex(pair[0])), parse(pair[1])))
                .toArray(Header[]::new);
            builder.appendWithOffset(Long.parseLong(fields[0]), Long.parseLong(fields[1]),
                parse(fields[2]), parse(fields[3]), headers);
        }
        return hex(builder.build());
    }

    private static String validate(String[] words) {
        short version = Short.parseShort(words[1]);
        long base = Long.parseLong(words[2]);
        byte magic = Byte.parseByte(words[5]);
        TimestampType type = words[6].equals("LogAppendTime") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        int maxBytes = Integer.parseInt(words[10]);
        MemoryRecords records = records(words[11]);
        try {
            ProduceRequest.validateRecords(version, records);
            CompressionType source = analyze(records, maxBytes);
            Compression target = words[4].equals("producer") ? Compression.of(source).build() : compression(words[4]);
            LogValidator validator = new LogValidator(records, new TopicPartition("topic", 0),
                new Stopped(Long.parseLong(words[3])), source, target, words[9].equals("true"), magic, type,
                Long.parseLong(words[7]), Long.parseLong(words[8]), 7, AppendOrigin.CLIENT, MetadataVersion.IBP_3_9_IV0);
            PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(base);
            LogValidator.ValidationResult result =
                validator.validateMessagesAndAssignOffsets(offset, new Silent(), BufferSupplier.NO_CACHING);
            if (result.messageSizeMaybeChanged)
                checkSizes(result.validatedRecords, maxBytes);
            return "ok " + (offset.value - 1) + " " + result.maxTimestampMs + " " + hex(result.validatedRecords);
        } catch (RecordValidationException error) {
            return "refused " + Errors.forException(error.invalidException()).code() + " " + error.recordErrors().stream()
                .map(one -> String.valueOf(one.batchIndex)).collect(Collectors.joining(","));
        } catch (RuntimeException error) {
            return "refused " + Errors.forException(error).code() + " ";
        }
    }

    /** What the log checks of each entry before the validator sees it, and `checkSizes` after: both are private there. */
    private static CompressionType analyze(MemoryRecords records, int maxBytes) {
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2 && batch.baseOffset() != 0)
                throw new InvalidRecordException("base offset");
            if (batch.sizeInBytes() > maxBytes)
                throw new RecordTooLargeException("size");
            if (!batch.isValid())
                throw new CorruptRecordException("checksum");
            if (batch.compressionType() != CompressionType.NONE)
                source = batch.compressionType();
        }
        return source;
    }

    private static void checkSizes(MemoryRecords records, int maxBytes) {
        for (MutableRecordBatch batch : records.batches())
            if (batch.sizeInBytes() > maxBytes)
                throw new RecordTooLargeException("size");
    }

    private static final class Stopped implements Time {
        private final long now;

        Stopped(long now) {
            this.now = now;
        }

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }

    private static final class Silent implements LogValidator.MetricsRecorder {
        @Override public void recordInvalidMagic() { }
        @Override public void recordInvalidOffset() { }
        @Override public void recordInvalidSequence() { }
        @Override public void recordInvalidChecksums() { }
        @Override public void recordNoKeyCompactedTopic() { }
    }

    private static Compression compression(String name) {
        return Compression.of(name.equals("uncompressed") ? "none" : name).build();
    }

    private static MemoryRecords records(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(hex)));
    }

    private static String hex(org.apache.kafka.common.record.Records records) {
        return bytes(((MemoryRecords) records).buffer());
    }

    private static String bytes(ByteBuffer buffer) {
        if (buffer == null)
            return "-";
        byte[] found = new byte[buffer.remaining()];
        buffer.duplicate().get(found);
        return HEX.formatHex(found);
    }

    private static String bytes(byte[] found) {
        return found == null ? "-" : HEX.formatHex(found);
    }

    private static byte[] parse(String text) {
        return text.equals("-") ? null : HEX.parseHex(text);
    }
}
