// The line protocol of clients.py for franz-go.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type agent struct {
	bootstrap string
	producers map[string]*kgo.Client
	admin     *kadm.Client
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		panic(err)
	}
	a := &agent{bootstrap: os.Args[1], producers: map[string]*kgo.Client{}, admin: kadm.NewClient(client)}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		answer, err := a.run(strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
		var refused *kerr.Error
		switch {
		case err == nil:
			answerLine(map[string]any{"ok": answer})
		case errors.As(err, &refused):
			answerLine(map[string]any{"refused": refused.Code, "message": err.Error()})
		default:
			answerLine(map[string]any{"failed": err.Error()})
		}
	}
}

func answerLine(answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func (a *agent) run(words []string) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	topic := words[1]
	switch words[0] {
	case "produce":
		return a.produce(ctx, topic, int32(number(words[2])), words[3], words[4], words[5] == "1", words[6:])
	case "consume":
		return a.consume(ctx, topic, int32(number(words[2])), number(words[3]), int(number(words[4])))
	case "offset":
		return a.offset(ctx, topic, int32(number(words[2])), number(words[3]))
	case "partitions":
		topics, err := a.admin.ListTopics(ctx, topic)
		if err != nil {
			return nil, err
		}
		return len(topics[topic].Partitions), topics[topic].Err
	case "create":
		_, err := a.admin.CreateTopic(ctx, int32(number(words[2])), 1, pairs(words[3]), topic)
		return nil, err
	case "delete":
		_, err := a.admin.DeleteTopic(ctx, topic)
		return nil, err
	case "grow":
		grown, err := a.admin.UpdatePartitions(ctx, int(number(words[2])), topic)
		if err != nil {
			return nil, err
		}
		return nil, grown.Error()
	case "configs":
		return a.configs(ctx, topic)
	case "alter":
		return nil, a.alter(ctx, topic, pairs(words[2]))
	case "trim":
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, int32(number(words[2])), number(words[3]), -1)
		trimmed, err := a.admin.DeleteRecords(ctx, offsets)
		if err != nil {
			return nil, err
		}
		found := trimmed[topic][int32(number(words[2]))]
		return found.LowWatermark, found.Err
	}
	return nil, fmt.Errorf("unknown command %q", words[0])
}

func (a *agent) producer(codec, ack string, idempotent bool) (*kgo.Client, error) {
	name := fmt.Sprint(codec, ack, idempotent)
	if made := a.producers[name]; made != nil {
		return made, nil
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(a.bootstrap), kgo.ProducerBatchCompression(codecs[codec]), kgo.RequiredAcks(acks[ack]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20 * time.Millisecond),
		kgo.ProducerBatchMaxBytes(2_000_000), kgo.AllowAutoTopicCreation(), kgo.MetadataMinAge(10 * time.Millisecond),
	}
	if !idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	made, err := kgo.NewClient(options...)
	a.producers[name] = made
	return made, err
}

func (a *agent) produce(ctx context.Context, topic string, partition int32, codec, ack string, idempotent bool, words []string) (any, error) {
	client, err := a.producer(codec, ack, idempotent)
	if err != nil {
		return nil, err
	}
	records := make([]*kgo.Record, len(words))
	for i, word := range words {
		parts := strings.Split(word, "|")
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Key: data(parts[1]), Value: data(parts[2])}
		if parts[0] != "-" {
			records[i].Timestamp = time.UnixMilli(number(parts[0]))
		}
		for _, header := range strings.Split(parts[3], ",") {
			if name, value, found := strings.Cut(header, ":"); found {
				records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: name, Value: data(value)})
			}
		}
	}
	offsets := []int64{}
	results := client.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	for _, record := range records {
		offsets = append(offsets, record.Offset)
	}
	return offsets, nil
}

func (a *agent) consume(ctx context.Context, topic string, partition int32, offset int64, count int) (any, error) {
	start := kgo.NewOffset().At(offset)
	if offset == -2 {
		start = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(a.bootstrap), kgo.FetchMaxWait(50*time.Millisecond), kgo.KeepRetryableFetchErrors(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: start}}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	rows := []any{}
	for len(rows) < count {
		fetches := client.PollRecords(ctx, count-len(rows))
		for _, failure := range fetches.Errors() {
			return nil, failure.Err
		}
		for _, record := range fetches.Records() {
			headers := []any{}
			for _, header := range record.Headers {
				headers = append(headers, []any{header.Key, text(header.Value)})
			}
			rows = append(rows, []any{record.Offset, record.Timestamp.UnixMilli(), text(record.Key), text(record.Value), headers})
		}
	}
	return rows, nil
}

func (a *agent) offset(ctx context.Context, topic string, partition int32, timestamp int64) (any, error) {
	var listed kadm.ListedOffsets
	var err error
	switch timestamp {
	case -1:
		listed, err = a.admin.ListEndOffsets(ctx, topic)
	case -2:
		listed, err = a.admin.ListStartOffsets(ctx, topic)
	default:
		listed, err = a.admin.ListOffsetsAfterMilli(ctx, timestamp, topic)
	}
	if err != nil {
		return nil, err
	}
	found := listed[topic][partition]
	if found.Err != nil {
		return nil, found.Err
	}
	// Beyond the last record kadm answers with the end of the log and no timestamp.
	if timestamp >= 0 && found.Timestamp < 0 {
		return nil, nil
	}
	return found.Offset, nil
}

func (a *agent) configs(ctx context.Context, topic string) (any, error) {
	described, err := a.admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	values := map[string]*string{}
	for _, resource := range described {
		if resource.Err != nil {
			return nil, resource.Err
		}
		for _, config := range resource.Configs {
			values[config.Key] = config.Value
		}
	}
	return values, nil
}

func (a *agent) alter(ctx context.Context, topic string, configs map[string]*string) error {
	var changes []kadm.AlterConfig
	for name, value := range configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	altered, err := a.admin.AlterTopicConfigs(ctx, changes, topic)
	if err != nil {
		return err
	}
	for _, resource := range altered {
		if resource.Err != nil {
			return resource.Err
		}
	}
	return nil
}

func number(word string) int64 {
	value, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}

func pairs(word string) map[string]*string {
	found := map[string]*string{}
	for _, pair := range strings.Split(word, ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			found[name] = &value
		}
	}
	return found
}

func data(word string) []byte {
	if word == "-" {
		return nil
	}
	bytes, err := hex.DecodeString(word)
	if err != nil {
		panic(err)
	}
	return bytes
}

func text(bytes []byte) any {
	if bytes == nil {
		return nil
	}
	return hex.EncodeToString(bytes)
}
