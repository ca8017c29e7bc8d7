// franz-go as a load generator for bench/: the line protocol of bench/Load.java.
// Reads one command per line from stdin, `name key=value ...`, and answers with one line of JSON.
// The broker's CPU time is read from /proc around the measured time only, not around connecting.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const sampleEvery = 32
const tickHz = 100

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type options map[string]string

func (o options) number(name string) int {
	value, err := strconv.Atoi(o[name])
	if err != nil {
		panic(fmt.Sprintf("%s=%q is not a number", name, o[name]))
	}
	return value
}

func (o options) duration() time.Duration {
	seconds, err := strconv.ParseFloat(o["seconds"], 64)
	if err != nil {
		panic(err)
	}
	return time.Duration(seconds * float64(time.Second))
}

// ticks is the user and system time of all threads of the broker, in clock ticks.
func (o options) ticks() int {
	stat, err := os.ReadFile("/proc/" + o["pid"] + "/stat")
	if err != nil {
		panic(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return user + system
}

func main() {
	fmt.Println("ready")
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		given := options{}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			given[key] = value
		}
		answer, err := map[string]func(options) (map[string]any, error){"produce": produce, "consume": consume}[words[0]](given)
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		text, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
}

// produce sends as many records as the client can for the given time, then waits for the last acknowledgement.
func produce(o options) (map[string]any, error) {
	settings := []kgo.Opt{
		kgo.SeedBrokers(o["bootstrap"]),
		kgo.ProducerBatchMaxBytes(int32(o.number("batch"))),
		kgo.ProducerBatchCompression(codecs[o["codec"]]),
		kgo.DefaultProduceTopic(o["topic"]),
	}
	if o["acks"] == "1" {
		settings = append(settings, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx := context.Background()
	size := o.number("size")
	values := textLines(size)
	if err := client.ProduceSync(ctx, &kgo.Record{Value: values[0]}).FirstErr(); err != nil {
		return nil, err
	}
	var lock sync.Mutex
	var samples []time.Duration
	var failed error
	before, start := o.ticks(), time.Now()
	end := start.Add(o.duration())
	count := 0
	for now := start; now.Before(end); now = time.Now() {
		sent, sampled := now, count%sampleEvery == 0
		client.Produce(ctx, &kgo.Record{Value: values[count%len(values)]}, func(_ *kgo.Record, err error) {
			if err == nil && !sampled {
				return
			}
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				failed = err
			} else {
				samples = append(samples, time.Since(sent))
			}
		})
		count++
	}
	if err := client.Flush(ctx); err != nil {
		return nil, err
	}
	taken, used := time.Since(start), o.ticks()-before
	if failed != nil {
		return nil, failed
	}
	sort.Slice(samples, func(i, j int) bool { return samples[i] < samples[j] })
	answer := result(count*size, count, taken, used)
	for name, share := range map[string]float64{"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999} {
		answer[name] = samples[int(float64(len(samples)-1)*share)].Seconds() * 1e3
	}
	return answer, nil
}

// consume reads all partitions from the beginning, again and again for the given time.
func consume(o options) (map[string]any, error) {
	topic := o["topic"]
	from := map[int32]kgo.Offset{}
	for partition := range o.number("partitions") {
		from[int32(partition)] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(o["bootstrap"]), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), o.duration()+20*time.Second)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	total := 0
	rewind := map[string]map[int32]kgo.EpochOffset{topic: {}}
	ends.Each(func(end kadm.ListedOffset) {
		total += int(end.Offset)
		rewind[topic][end.Partition] = kgo.EpochOffset{Epoch: -1, Offset: 0}
	})
	for client.PollFetches(ctx).NumRecords() == 0 {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	client.SetOffsets(rewind)
	before, start := o.ticks(), time.Now()
	end := start.Add(o.duration())
	bytes, count, round := 0, 0, 0
	for time.Now().Before(end) {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			bytes += len(record.Value)
			count++
			round++
		})
		if round >= total {
			client.SetOffsets(rewind)
			round = 0
		}
	}
	if count == 0 {
		return nil, errors.New("nothing arrived")
	}
	return result(bytes, count, time.Since(start), o.ticks()-before), nil
}

func result(bytes, count int, taken time.Duration, ticks int) map[string]any {
	return map[string]any{"bytes": bytes, "count": count, "seconds": taken.Seconds(), "cpu_s": float64(ticks) / tickHz}
}

// textLines are log lines that compress to about a third, as the other load generators send.
func textLines(size int) [][]byte {
	words := strings.Fields("GET POST PUT 200 204 301 404 500 /orders /users /search /cart /login host=web-1 host=web-2 region=eu region=us user= " +
		"order= session= price= amount= status=ok status=failed retry=1 cache=hit cache=miss latency_ms= bytes= trace= span= level=info " +
		"level=warn level=error component=checkout component=payment component=stock")
	lines := make([][]byte, 4096)
	state := uint64(1)
	for i := range lines {
		line := []byte{}
		for len(line) < size {
			state = state*6364136223846793005 + 1442695040888963407
			line = append(line, words[(state>>33)%uint64(len(words))]...)
			line = strconv.AppendUint(line, (state>>40)%100000, 10)
			line = append(line, ' ')
		}
		lines[i] = line[:size]
	}
	return lines
}
