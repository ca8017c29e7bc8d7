// Writes and reads a record with each set of options on standard input, and prints what came of it: see test_matrix.py.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		options := map[string]string{}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			options[name] = value
		}
		outcome := "ok"
		if err := attempt(words[0], options); err != nil {
			outcome = strings.NewReplacer("\n", " ", "\t", " ").Replace(err.Error())
		}
		fmt.Printf("%s\t%s\n", words[0], outcome)
	}
}

func attempt(name string, options map[string]string) error {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(options["bootstrap.servers"]),
		kgo.RequestRetries(0),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{options["test.topic"]: {0: kgo.NewOffset().AtStart()}}),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if strings.HasSuffix(options["security.protocol"], "SSL") {
		config, err := secure(options)
		if err != nil {
			return err
		}
		chosen = append(chosen, kgo.DialTLSConfig(config))
	}
	user, password := options["test.user"], options["test.password"]
	switch options["sasl.mechanism"] {
	case "PLAIN":
		chosen = append(chosen, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		chosen = append(chosen, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		chosen = append(chosen, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		chosen = append(chosen, kgo.SASL(oauth.Auth{Token: options["test.token"]}.AsMechanism()))
	}
	client, err := kgo.NewClient(chosen...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	record := &kgo.Record{Topic: options["test.topic"], Value: []byte(name)}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		for _, found := range client.PollFetches(ctx).Records() {
			if found.Offset == record.Offset && string(found.Value) == name {
				return nil
			}
		}
	}
	return ctx.Err()
}

func secure(options map[string]string) (*tls.Config, error) {
	trusted, err := os.ReadFile(options["ssl.truststore.location"])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if path := options["ssl.keystore.location"]; path != "" {
		own, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	if versions := options["ssl.enabled.protocols"]; versions == "TLSv1.1" {
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	} else if versions == "TLSv1.2" {
		config.MinVersion, config.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	}
	return config, nil
}
