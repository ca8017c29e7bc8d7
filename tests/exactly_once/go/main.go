// Transactional producers of franz-go, driven by the lines of transactors.py. Offsets belong to its group sessions, which
// nobody can drive step by step; the copier has them.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var producers = map[string]*kgo.Client{}

func number(word string) int {
	value, err := strconv.Atoi(word)
	if err != nil {
		panic(err)
	}
	return value
}

func run(ctx context.Context, words []string) error {
	client := producers[words[1]]
	switch words[0] {
	case "open":
		made, err := kgo.NewClient(
			kgo.SeedBrokers(os.Args[1]),
			kgo.TransactionalID(words[2]),
			kgo.TransactionTimeout(time.Duration(number(words[3]))*time.Millisecond),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			return err
		}
		producers[words[1]] = made
		_, _, err = made.ProducerID(ctx)
		return err
	case "begin":
		return client.BeginTransaction()
	case "send":
		record := &kgo.Record{Topic: words[2], Partition: int32(number(words[3])), Value: []byte(words[4])}
		return client.ProduceSync(ctx, record).FirstErr()
	case "commit":
		return client.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		if err := client.AbortBufferedRecords(ctx); err != nil {
			return err
		}
		return client.EndTransaction(ctx, kgo.TryAbort)
	}
	return fmt.Errorf("unknown command %q", words[0])
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		err := run(ctx, strings.Split(lines.Text(), "\t"))
		cancel()
		var refused *kerr.Error
		switch {
		case err == nil:
			fmt.Println("ok")
		case errors.As(err, &refused):
			fmt.Println("failed", refused.Message)
		default:
			fmt.Println("failed", err)
		}
	}
}
