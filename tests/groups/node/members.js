// Members of kafkajs; commands and events are those of hosts/program.py. The library has one assignor, round robin, no
// static members, and no callback that waits: it tells when it begins to rebalance and what it got.
'use strict'

const readline = require('readline')
const { Kafka, PartitionAssigners, logLevel } = require('kafkajs')

const members = {}

class Member {
  constructor(name, options) {
    this.name = name
    this.group = options.group
    this.owned = []
    const kafka = new Kafka({
      brokers: [process.argv[2]],
      clientId: name,
      logLevel: logLevel.NOTHING,
      retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 20 },
    })
    this.consumer = kafka.consumer({
      groupId: options.group,
      sessionTimeout: Number(options.session_ms),
      heartbeatInterval: Number(options.heartbeat_ms),
      rebalanceTimeout: 10000,
      maxWaitTimeInMs: 50,
      partitionAssigners: [PartitionAssigners.roundRobin],
    })
    this.topics = options.topics.split(',')
  }

  emit(what, facts = {}) {
    const line = { group: this.group, member: this.name, what, ...facts }
    process.stdout.write(`{"at": ${process.hrtime.bigint()}, ${JSON.stringify(line).slice(1)}\n`)
  }

  give(what) {
    if (this.owned.length > 0) this.emit(what, { parts: this.owned })
    this.owned = []
  }

  async join() {
    const { consumer } = this
    consumer.on(consumer.events.REBALANCING, () => this.give('revoked'))
    consumer.on(consumer.events.CRASH, ({ payload }) => this.emit('failed', { error: String(payload.error) }))
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      this.give('revoked')
      for (const [topic, indexes] of Object.entries(payload.memberAssignment)) {
        for (const index of indexes) this.owned.push(`${topic}-${index}`)
      }
      this.owned.sort()
      this.emit('assigned', { parts: this.owned })
    })
    await consumer.connect()
    await consumer.subscribe({ topics: this.topics, fromBeginning: true })
    await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch: batch => this.work(batch) })
  }

  async work({ batch, resolveOffset, heartbeat, isStale, isRunning }) {
    if (!isRunning() || isStale() || batch.messages.length === 0) return
    const part = `${batch.topic}-${batch.partition}`
    const offsets = batch.messages.map(message => Number(message.offset))
    const last = offsets[offsets.length - 1]
    this.emit('polled', { part, first: offsets[0], last, count: offsets.length })
    const committed = { offsets: { [part]: last + 1 } }
    this.emit('committing', committed)
    try {
      await this.consumer.commitOffsets([{ topic: batch.topic, partition: batch.partition, offset: String(last + 1) }])
      resolveOffset(String(last))
      this.emit('committed', committed)
    } catch (error) {
      this.emit('refused', { ...committed, error: refusal(error) })
      return // not resolved: read again, by whoever owns it then
    }
    await heartbeat()
  }

  async leave() {
    await this.consumer.stop()
    this.give('revoked')
    await this.consumer.disconnect()
    this.emit('left')
  }
}

function refusal(error) {
  while (error.cause) error = error.cause
  return error.type || error.name
}

const lines = readline.createInterface({ input: process.stdin })
lines.on('line', line => {
  const [command, name, ...words] = line.split('\t')
  if (command === 'join') {
    members[name] = new Member(name, Object.fromEntries(words.map(word => word.split(/=(.*)/s).slice(0, 2))))
    members[name].join().catch(error => members[name].emit('failed', { error: String(error) }))
  } else {
    members[name].leave().catch(error => members[name].emit('failed', { error: String(error) }))
  }
})
lines.on('close', () => process.exit(0))
