// Members of franz-go; commands and events are those of hosts/program.py.
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
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	"uniform":            kgo.StickyBalancer(), // its name on the server's side
}

type member struct {
	name, group string
	client      *kgo.Client
	leaving     chan struct{}
	deadline    time.Duration // of a poll
}

var printing sync.Mutex

// CLOCK_MONOTONIC itself: Go's own monotonic reading counts from the start of the process.
func now() int64 {
	var spec syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&spec)), 0)
	return spec.Nano()
}

func (m *member) emit(what string, facts map[string]any) {
	line := map[string]any{"at": now(), "group": m.group, "member": m.name, "what": what}
	for name, value := range facts {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(text))
}

func parts(places map[string][]int32) []string {
	names := []string{}
	for topic, indexes := range places {
		for _, index := range indexes {
			names = append(names, fmt.Sprintf("%s-%d", topic, index))
		}
	}
	sort.Strings(names)
	return names
}

func milliseconds(word string) time.Duration {
	number, err := strconv.Atoi(word)
	if err != nil {
		panic(err)
	}
	return time.Duration(number) * time.Millisecond
}

func join(bootstrap, name string, options map[string]string) *member {
	m := &member{name: name, group: options["group"], leaving: make(chan struct{}), deadline: 100 * time.Millisecond}
	settings := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ClientID(name),
		kgo.ConsumerGroup(m.group),
		kgo.ConsumeTopics(strings.Split(options["topics"], ",")...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.Balancers(balancers[options["assignor"]]),
		kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, places map[string][]int32) {
			_, generation := client.GroupMetadata()
			m.emit("assigned", map[string]any{"parts": parts(places), "generation": generation})
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
			m.emit("revoked", map[string]any{"parts": parts(places)})
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
			m.emit("lost", map[string]any{"parts": parts(places)})
		}),
	}
	if options["protocol"] == "consumer" {
		settings = append(settings, kgo.ServerSideBalancer())
	} else {
		settings = append(settings,
			kgo.SessionTimeout(milliseconds(options["session_ms"])),
			kgo.HeartbeatInterval(milliseconds(options["heartbeat_ms"])))
	}
	if instance := options["instance"]; instance != "" {
		settings = append(settings, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		panic(err)
	}
	m.client = client
	return m
}

func (m *member) run() {
	ctx := context.Background()
	for {
		select {
		case <-m.leaving:
			m.client.CloseAllowingRebalance()
			m.emit("left", nil)
			return
		default:
		}
		polling, cancel := context.WithTimeout(ctx, m.deadline)
		fetches := m.client.PollRecords(polling, 200)
		cancel()
		offsets := map[string]int64{}
		fetches.EachPartition(func(found kgo.FetchTopicPartition) {
			if len(found.Records) > 0 {
				part := fmt.Sprintf("%s-%d", found.Topic, found.Partition)
				first, last := found.Records[0].Offset, found.Records[len(found.Records)-1].Offset
				m.emit("polled", map[string]any{"part": part, "first": first, "last": last, "count": len(found.Records)})
				offsets[part] = last + 1
			}
		})
		for _, failure := range fetches.Errors() {
			if !errors.Is(failure.Err, context.DeadlineExceeded) {
				fmt.Fprintln(os.Stderr, m.name, failure.Err)
			}
		}
		if len(offsets) > 0 {
			m.emit("committing", map[string]any{"offsets": offsets})
			if err := m.client.CommitRecords(ctx, fetches.Records()...); err != nil {
				name := err.Error()
				var refused *kerr.Error
				if errors.As(err, &refused) {
					name = refused.Message
				}
				m.emit("refused", map[string]any{"offsets": offsets, "error": name})
			} else {
				m.emit("committed", map[string]any{"offsets": offsets})
			}
		}
		m.client.AllowRebalance()
	}
}

func main() {
	members := map[string]*member{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		if words[0] == "leave" {
			close(members[words[1]].leaving)
			continue
		}
		options := map[string]string{}
		for _, word := range words[2:] {
			name, value, _ := strings.Cut(word, "=")
			options[name] = value
		}
		m := join(os.Args[1], words[1], options)
		members[words[1]] = m
		go m.run()
	}
}
