// kafkajs in a group: with eachMessage, or with `--tool batch` as programs for many records do it, with eachBatch and sendBatch.
// ../README.md describes what a member tells.
'use strict'

const { createInterface } = require('node:readline')
const { parseArgs } = require('node:util')
const { Kafka, logLevel, CompressionTypes } = require('kafkajs')
const { version } = require('kafkajs/package.json')

const AUTO_COMMIT_MS = 200
const BATCH_RECORDS = 100

function tell(event, fields) {
  console.log(JSON.stringify({ at: performance.timeOrigin + performance.now(), event, ...fields }))
}

function absent(why) {
  tell('absent', { why })
  process.exit(0)
}

class Member {
  constructor(options) {
    this.options = options
    this.owned = []
    this.read = new Map()
    this.kafka = new Kafka({ clientId: 'member', brokers: [options.bootstrap], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 100 } })
    this.consumer = this.kafka.consumer({
      groupId: options.group, sessionTimeout: Number(options['session-ms']), heartbeatInterval: Number(options['heartbeat-ms']),
      maxWaitTimeInMs: 100,
    })
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events
    this.consumer.on(GROUP_JOIN, ({ payload }) => {
      this.giveUp()
      this.owned = payload.memberAssignment[options.topic] || []
      tell('assigned', { partitions: this.owned })
    })
    this.consumer.on(REBALANCING, () => this.giveUp())
    this.consumer.on(CRASH, ({ payload }) => tell('failed', { command: 'poll', error: String(payload.error) }))
  }

  giveUp() {
    if (this.owned.length > 0) tell('revoked', { partitions: this.owned })
    this.owned = []
    this.read.clear()
  }

  async run() {
    const { topic, reset, commit, tool } = this.options
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [topic], fromBeginning: reset === 'earliest' })
    const auto = commit === 'auto' ? { autoCommit: true, autoCommitInterval: AUTO_COMMIT_MS } : { autoCommit: false }
    if (tool === 'batch') {
      await this.consumer.run({ ...auto, eachBatchAutoResolve: false, eachBatch: batch => this.eachBatch(batch) })
    } else {
      await this.consumer.run({ ...auto, eachMessage: async ({ partition, message }) => this.record(partition, message) })
    }
  }

  async eachBatch({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary, isRunning, isStale }) {
    for (const message of batch.messages) {
      if (!isRunning() || isStale()) break
      this.record(batch.partition, message)
      resolveOffset(message.offset)
      await heartbeat()
    }
    if (this.options.commit === 'auto') await commitOffsetsIfNecessary()
  }

  record(partition, message) {
    tell('record', { partition, offset: Number(message.offset), value: message.value.toString() })
    this.read.set(partition, Number(message.offset) + 1)
  }

  async commit(note) {
    const { topic } = this.options
    await this.consumer.commitOffsets([...this.read].map(([partition, offset]) => ({ topic, partition, offset: String(offset), metadata: note })))
  }

  async seek(partition, offset) {
    this.consumer.seek({ topic: this.options.topic, partition: Number(partition), offset })
  }

  async pause(partition) {
    this.consumer.pause([{ topic: this.options.topic, partitions: [Number(partition)] }])
  }

  async resume(partition) {
    this.consumer.resume([{ topic: this.options.topic, partitions: [Number(partition)] }])
  }

  // Keyed records in compressed batches; the value is key/number, for the case to judge order and completeness.
  async produce(count) {
    const producer = this.kafka.producer({ idempotent: true, maxInFlightRequests: 1, allowAutoTopicCreation: false })
    await producer.connect()
    for (let from = 0; from < Number(count); from += BATCH_RECORDS) {
      const numbers = Array.from({ length: Math.min(BATCH_RECORDS, Number(count) - from) }, (_, i) => from + i)
      const messages = numbers.map(i => ({ key: `user-${i % 37}`, value: `user-${i % 37}/${i}` }))
      await producer.sendBatch({ compression: CompressionTypes.GZIP, topicMessages: [{ topic: this.options.topic, messages }] })
    }
    await producer.disconnect()
  }

  // Told first: as soon as the group knows, another member may tell that it has them.
  async leave() {
    this.giveUp()
    await this.consumer.disconnect()
  }
}

async function main() {
  const text = { type: 'string' }
  const names = ['bootstrap', 'topic', 'group', 'assignor', 'reset', 'commit', 'session-ms', 'heartbeat-ms', 'instance', 'tool']
  const { values: options } = parseArgs({ options: Object.fromEntries(names.map(name => [name, text])) })
  process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
  tell('hello', { version, owners: true })
  if (options.assignor !== 'range') absent('kafkajs has no cooperative assigner')
  if (options.instance) absent('kafkajs has no group.instance.id')
  if (options.reset === 'none') absent('kafkajs begins at the beginning or at the end')
  const member = new Member(options)
  await member.run().catch(error => tell('failed', { command: 'poll', error: String(error) }))
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ')
    if (command === 'leave') break
    try {
      await member[command](...words)
      tell('done', { command })
    } catch (error) {
      tell('failed', { command, error: String(error) })
    }
  }
  await member.leave()
  process.exit(0)
}

main()
