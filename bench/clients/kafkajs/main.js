// kafkajs: every codec, every acks. Its public consumer needs a group, so the records are read back with its own cluster and broker
// classes, which decode them as the consumer does. ../README.md describes the record set.
'use strict'

const { parseArgs } = require('node:util')
const { Kafka, logLevel, CompressionTypes, CompressionCodecs } = require('kafkajs')
const { version } = require('kafkajs/package.json')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const { ZstdCodec } = require('zstd-codec')

const PARTITIONS = 4
const LARGE_BYTES = 100_000
const MEDIUM_BYTES = 10_000
const SMALL_BYTES_MAX = 700
// kafkajs makes one batch for each partition and send; 1,000 records stay below the broker's limit of 1 MB a batch.
const SEND_RECORDS = 1000
const LIMIT_MS = 120_000
const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const ACKS = { 0: 0, 1: 1, all: -1 }

const TEXT = block(15)
const NOISE = block(255)

function block(mask) {
  const out = Buffer.alloc(128 * 1024)
  let state = 0x2545f491
  for (let i = 0; i < out.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    const byte = state >>> 24
    out[i] = mask === 255 ? byte : 97 + (byte & mask)
  }
  return out
}

function valueBytes(i, length) {
  const source = i % 2 ? NOISE : TEXT
  const start = (i * 7919) % (source.length - LARGE_BYTES)
  return source.subarray(start, start + length)
}

function key(i) {
  switch (i % 6) {
    case 0: return null
    case 1: return Buffer.alloc(0)
    case 2: return Buffer.from(`key-${i}`)
    case 3: return Buffer.from(`ключ-鍵-🔑-${i}`)
    case 4: return NOISE.subarray(i, i + 8)
    default: return Buffer.from(`k${i % 50}`)
  }
}

function value(i) {
  if (i % 1000 === 7) return valueBytes(i, LARGE_BYTES)
  if (i % 100 === 8) return valueBytes(i, MEDIUM_BYTES)
  switch (i % 10) {
    case 1: return null
    case 2: return Buffer.alloc(0)
    case 3: return Buffer.from(`значение ${i} 値 ✓ \u0000 \u2028 end`)
    default: return valueBytes(i, 1 + ((i * 31) % SMALL_BYTES_MAX))
  }
}

// kafkajs keeps headers as an object; a repeated key has an array of values.
function headers(i) {
  switch (i % 4) {
    case 1: return { trace: Buffer.from(`id-${i}`) }
    case 2: return { a: [Buffer.from([0, 255]), Buffer.from('second')], пусто: Buffer.alloc(0) }
    // The null of the record set: kafkajs fails on a header without a value.
    case 3: return { null: Buffer.alloc(0), n: Buffer.from(String(i)) }
    default: return {}
  }
}

function records(count) {
  const base = Date.now() - count
  return Array.from({ length: count }, (_, i) => ({
    partition: i % PARTITIONS, key: key(i), value: value(i), headers: headers(i), timestamp: String(base + i),
  }))
}

function plain(thing) {
  if (thing === null || thing === undefined) return 'null'
  if (Buffer.isBuffer(thing)) return `bytes ${thing.toString('hex')}`
  if (Array.isArray(thing)) return `[${thing.map(plain).join()}]`
  if (typeof thing === 'object') return `{${Object.entries(thing).map(([k, v]) => `${k}:${plain(v)}`).join()}}`
  return String(thing)
}

function compare(sent, read) {
  for (let p = 0; p < PARTITIONS; p++) {
    const want = sent.filter(record => record.partition === p)
    const have = read[p]
    if (want.length !== have.length) return `partition ${p}: sent ${want.length} records, read ${have.length}`
    for (let at = 0; at < want.length; at++) {
      const where = `partition ${p}, record ${at}`
      if (have[at].offset !== String(at)) return `${where}: offset ${have[at].offset}`
      for (const field of ['key', 'value', 'headers', 'timestamp']) {
        const a = plain(want[at][field])
        const b = plain(have[at][field])
        if (a !== b) return `${where}: ${field} sent ${a.slice(0, 100)}, read ${b.slice(0, 100)}`
      }
    }
  }
  return null
}

async function registerCodecs() {
  CompressionCodecs[CompressionTypes.Snappy] = snappy
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: encoder => lz4.compressFrame(encoder.buffer),
    decompress: buffer => lz4.decompressFrame(buffer),
  })
  const zstd = await new Promise(resolve => ZstdCodec.run(binding => resolve(new binding.Simple())))
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
  })
}

async function roundTrip(kafka, topic, codec, acks, sent) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }], waitForLeaders: true })
    await waitForLeaders(admin, topic)
    await produce(kafka, topic, codec, acks, sent)
    const ends = await endOffsets(admin, topic, sent.length)
    const read = await consume(kafka, topic, ends)
    await admin.deleteTopics({ topics: [topic] })
    return read
  } finally {
    await admin.disconnect()
  }
}

// A topic's leaders may start after its creation is answered; acks=0 would lose what comes before.
async function waitForLeaders(admin, topic) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await admin.fetchTopicOffsets(topic)
    } catch (error) {
      if (attempt === 100) throw error
      await new Promise(resolve => setTimeout(resolve, 50))
    }
  }
}

// With acks=0 the end is reached some time after the last send.
async function endOffsets(admin, topic, count) {
  for (let attempt = 0; ; attempt++) {
    const offsets = await admin.fetchTopicOffsets(topic)
    if (attempt === 100 || offsets.reduce((sum, { high }) => sum + Number(high), 0) >= count) return offsets
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

async function produce(kafka, topic, codec, acks, sent) {
  const producer = kafka.producer({ idempotent: acks === 'all', maxInFlightRequests: 1, allowAutoTopicCreation: false })
  await producer.connect()
  try {
    for (let from = 0; from < sent.length; from += SEND_RECORDS) {
      await producer.send({ topic, acks: ACKS[acks], compression: TYPES[codec], messages: sent.slice(from, from + SEND_RECORDS) })
    }
  } finally {
    await producer.disconnect()
  }
}

async function consume(kafka, topic, ends) {
  const createCluster = Object.getOwnPropertySymbols(kafka).find(symbol => symbol.description === 'private:Kafka:createCluster')
  const cluster = kafka[createCluster]({ metadataMaxAge: 60_000, allowAutoTopicCreation: false })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    const read = Array.from({ length: PARTITIONS }, () => [])
    for (const { partition, high } of ends) {
      const [nodeId] = Object.keys(cluster.findLeaderForPartitions(topic, [partition]))
      const broker = await cluster.findBroker({ nodeId })
      while (read[partition].length < Number(high)) await fetch(broker, topic, partition, read[partition])
    }
    return read
  } finally {
    await cluster.disconnect()
  }
}

async function fetch(broker, topic, partition, read) {
  const fetchOffset = String(read.length)
  const answer = await broker.fetch({
    maxWaitTime: 1000, minBytes: 1, maxBytes: 4 << 20, isolationLevel: 1,
    topics: [{ topic, partitions: [{ partition, fetchOffset, maxBytes: 1 << 20 }] }],
  })
  const messages = answer.responses[0].partitions[0].messages.filter(message => Number(message.offset) >= read.length)
  if (messages.length === 0) throw new Error(`partition ${partition}: nothing at offset ${fetchOffset}, below the end offset`)
  read.push(...messages)
}

function limited(promise, milliseconds) {
  let timer
  const limit = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`no end after ${milliseconds} ms`)), milliseconds) })
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer))
}

async function main() {
  const text = { type: 'string' }
  const { values: options } = parseArgs({
    options: { bootstrap: text, 'topic-prefix': text, records: { ...text, default: '10000' }, codecs: text, acks: text },
  })
  await registerCodecs()
  process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
  const kafka = new Kafka({ clientId: 'kafkajs', brokers: [options.bootstrap], logLevel: logLevel.NOTHING })
  const wanted = (list, name) => !list || list.split(',').includes(name)
  let failed = false
  for (const codec of Object.keys(TYPES).filter(name => wanted(options.codecs, name))) {
    for (const acks of Object.keys(ACKS).filter(name => wanted(options.acks, name))) {
      const started = Date.now()
      const sent = records(Number(options.records))
      let read = []
      let error
      try {
        const topic = `${options['topic-prefix']}-kafkajs-${codec}-${acks}`
        read = await limited(roundTrip(kafka, topic, codec, acks, sent), LIMIT_MS)
        error = compare(sent, read)
      } catch (problem) {
        error = `${problem.name}: ${problem.message}`
      }
      failed ||= error !== null
      console.log(JSON.stringify({
        client: 'kafkajs', version, codec, acks, produced: sent.length, read: read.reduce((sum, part) => sum + part.length, 0),
        ok: error === null, error, seconds: (Date.now() - started) / 1000,
      }))
    }
  }
  process.exit(failed ? 1 : 0)
}

main()
