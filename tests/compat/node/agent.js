// The line protocol of clients.py for kafkajs. Its consumer works in groups only, so records are fetched through the
// broker object that the consumer itself uses; producer and admin are the public ones.
'use strict'

const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const socketFactory = require('kafkajs/src/network/socketFactory')
const { createLogger } = require('kafkajs/src/loggers')
const LoggerConsole = require('kafkajs/src/loggers/console')
const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrame(encoder.buffer),
  decompress: async buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const ACKS = { all: -1, 1: 1, 0: 0 }

const brokers = [process.argv[2]]
const retry = { retries: 3, initialRetryTime: 50 }
const kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING, retry })
const admin = kafka.admin({ retry })
const producers = {}
const cluster = new Cluster({
  logger: createLogger({ level: logLevel.NOTHING, logCreator: LoggerConsole }),
  socketFactory: socketFactory(),
  brokers,
  clientId: 'agent',
  connectionTimeout: 1000,
  enforceRequestTimeout: true,
  metadataMaxAge: 300000,
  retry,
  allowAutoTopicCreation: false,
  isolationLevel: 0,
})

const data = word => (word === '-' ? null : Buffer.from(word, 'hex'))
const text = bytes => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('hex'))
const pairs = word =>
  word === '' ? [] : word.split(',').map(pair => ({ name: pair.split('=')[0], value: pair.slice(pair.indexOf('=') + 1) }))

async function producer(acks, idempotent) {
  const name = `${acks}/${idempotent}`
  if (!producers[name]) {
    producers[name] = kafka.producer({ idempotent, retry: idempotent ? undefined : retry, createPartitioner: () => ({ message }) => message.partition })
    await producers[name].connect()
  }
  return producers[name]
}

function message(word, partition) {
  const [timestamp, key, value, headers] = word.split('|')
  const found = { key: data(key), value: data(value), partition, headers: {} }
  if (timestamp !== '-') found.timestamp = timestamp
  for (const header of headers === '' ? [] : headers.split(',')) {
    const [name, bytes] = header.split(':')
    const before = found.headers[name]
    found.headers[name] = before === undefined ? data(bytes) : [].concat(before, [data(bytes)])
  }
  return found
}

async function leader(topic, partition) {
  await cluster.connect()
  await cluster.addTargetTopic(topic)
  const found = cluster.findTopicPartitionMetadata(topic).find(entry => entry.partitionId === partition)
  return cluster.findBroker({ nodeId: found.leader })
}

async function consume(topic, partition, offset, count) {
  const broker = await leader(topic, partition)
  const rows = []
  let next = offset === '-2' ? (await listed(broker, topic, partition, '-2')) : offset
  while (rows.length < count) {
    const { responses } = await broker.fetch({
      replicaId: -1,
      isolationLevel: 0,
      maxWaitTime: 50,
      topics: [{ topic, partitions: [{ partition, fetchOffset: next, maxBytes: 1048576 }] }],
    })
    for (const found of responses[0].partitions[0].messages) {
      if (BigInt(found.offset) < BigInt(next) || rows.length >= count) continue
      const headers = []
      for (const [name, values] of Object.entries(found.headers || {})) {
        for (const value of Array.isArray(values) ? values : [values]) headers.push([name, text(value)])
      }
      rows.push([Number(found.offset), Number(found.timestamp), text(found.key), text(found.value), headers])
    }
    if (rows.length > 0) next = String(rows[rows.length - 1][0] + 1)
  }
  return rows
}

async function listed(broker, topic, partition, timestamp) {
  const { responses } = await broker.listOffsets({
    replicaId: -1,
    isolationLevel: 0,
    topics: [{ topic, partitions: [{ partition, timestamp }] }],
  })
  return responses[0].partitions[0].offset
}

const COMMANDS = {
  async produce(topic, partition, codec, acks, idempotent, ...words) {
    const sender = await producer(acks, idempotent === '1')
    const messages = words.map(word => message(word, Number(partition)))
    const answers = await sender.send({ topic, acks: ACKS[acks], compression: CODECS[codec], messages })
    if (ACKS[acks] === 0) return words.map(() => -1)
    return words.map((_, index) => Number(answers[0].baseOffset) + index)
  },
  consume: (topic, partition, offset, count) => consume(topic, Number(partition), offset, Number(count)),
  async offset(topic, partition, timestamp) {
    const offset = Number(await listed(await leader(topic, Number(partition)), topic, Number(partition), timestamp))
    return offset < 0 ? null : offset
  },
  async partitions(topic) {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length
  },
  async create(topic, partitions, configs) {
    const wanted = { topic, numPartitions: Number(partitions), replicationFactor: 1, configEntries: pairs(configs) }
    if (!(await admin.createTopics({ topics: [wanted] }))) throw Object.assign(new Error('topic exists'), { code: 36 })
    return null
  },
  async delete(topic) {
    await admin.deleteTopics({ topics: [topic] })
    return null
  },
  async grow(topic, total) {
    await admin.createPartitions({ topicPartitions: [{ topic, count: Number(total) }] })
    return null
  },
  async configs(topic) {
    const { resources } = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] })
    return Object.fromEntries(resources[0].configEntries.map(entry => [entry.configName, entry.configValue]))
  },
  async alter(topic, configs) {
    await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: pairs(configs) }] })
    return null
  },
  async trim(topic, partition, offset) {
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: Number(partition), offset }] })
    return Number(await listed(await leader(topic, Number(partition)), topic, Number(partition), '-2'))
  },
}

// kafkajs wraps what a broker refuses in errors of its own: the code is at the end of the chain.
function refusal(error) {
  const next = ({ cause, errors, partitions }) => cause || (errors && errors[0]) || (partitions && partitions[0].error)
  for (let cause = error; cause; cause = next(cause)) {
    if (typeof cause.code === 'number' && cause.code > 0) return { refused: cause.code, message: String(cause.message) }
  }
  return { failed: String(error.stack || error) }
}

async function main() {
  await zstd.init()
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split('\t')
    let answer
    try {
      answer = { ok: await COMMANDS[command](...words) }
    } catch (error) {
      answer = refusal(error)
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}

main()
