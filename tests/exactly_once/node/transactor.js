// Transactional producers of kafkajs, driven by the lines of transactors.py. A transaction begins in the first call that
// needs it, because the library begins one only when it has to.
'use strict'

const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const producers = {}
const transactions = {}

const COMMANDS = {
  async open(key, id, timeout) {
    const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
    producers[key] = kafka.producer({
      transactionalId: id,
      transactionTimeout: Number(timeout),
      maxInFlightRequests: 1,
      idempotent: true,
      retry: { initialRetryTime: 50, retries: 10 },
      createPartitioner: () => ({ message }) => message.partition,
    })
    await producers[key].connect()
  },
  async begin(key) {
    transactions[key] = await producers[key].transaction()
  },
  async send(key, topic, partition, value) {
    await transactions[key].send({ topic, messages: [{ value, partition: Number(partition) }] })
  },
  async offsets(key, consumerGroupId, topic, partition, offset) {
    const topics = [{ topic, partitions: [{ partition: Number(partition), offset }] }]
    await transactions[key].sendOffsets({ consumerGroupId, topics })
  },
  async commit(key) {
    await transactions[key].commit()
  },
  async abort(key) {
    await transactions[key].abort()
  },
}

function names(error) {
  const found = []
  for (let cause = error; cause; cause = cause.cause) found.push(cause.type || cause.name)
  return found.join(' ')
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split('\t')
    let answer = 'ok'
    try {
      await COMMANDS[command](...words)
    } catch (error) {
      answer = `failed ${names(error)}`
    }
    process.stdout.write(`${answer}\n`)
  }
  process.exit(0)
}

main()
