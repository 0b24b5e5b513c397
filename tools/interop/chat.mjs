#!/usr/bin/env node
// Two people chat through a relay: Alice with nostr-tools, Bob with NDK, in a channel that Alice makes (NIP-29).
//
// usage: node chat.mjs ws://HOST[:PORT] [--connect HOST:PORT] [--messages N]
//
// The URL's host is that of a community that both may use, an open one; --connect says where to reach it if DNS does not, such
// as a Service's address. Each says N things (default 20) in turn with the other. Whatever is said must be heard by the
// other live, once and in order, and be found stored afterwards by somebody who comes later. Exits 0 if it is.
import net from 'node:net'
import { parseArgs } from 'node:util'
import NDK, { NDKEvent, NDKPrivateKeySigner, NDKRelayAuthPolicies, NDKSubscriptionCacheUsage } from '@nostr-dev-kit/ndk'
import { useWebSocketImplementation } from 'nostr-tools/relay'
import WebSocket from 'ws'
import { Person, listen, now, query, within } from './client.mjs'

const chat = 9

function options() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { connect: { type: 'string' }, messages: { type: 'string', default: '20' } },
  })
  const [url] = positionals
  const messages = Number(values.messages)
  const connect = values.connect && new URL(`tcp://${values.connect}`)
  if (positionals.length !== 1 || !/^wss?:\/\//.test(url) || !(messages > 0) || (connect && !connect.port)) {
    throw new Error('say which relay: node chat.mjs ws://HOST[:PORT] [--connect HOST:PORT] [--messages N]')
  }
  if (connect && url.startsWith('wss:')) throw new Error('--connect is for ws: with wss a certificate has to fit the name')
  return { url, connect, messages }
}

// dialTo makes both libraries connect to one address whatever the URL says; the Host header stays the URL's.
function dialTo(address) {
  class Directed extends WebSocket {
    constructor(url, protocols) {
      super(url, protocols, { createConnection: () => net.connect(Number(address.port), address.hostname) })
    }
  }
  return address ? Directed : WebSocket
}

// speak opens Bob's side: NDK, authenticated and subscribed; heard() resolves to the next message.
async function speak(url, h) {
  const signer = NDKPrivateKeySigner.generate()
  const ndk = new NDK({ explicitRelayUrls: [url], signer, enableOutboxModel: false })
  ndk.relayAuthDefaultPolicy = NDKRelayAuthPolicies.signIn({ ndk, signer })
  const authenticated = new Promise((resolve) => ndk.pool.on('relay:authed', resolve))
  await ndk.connect(10000)
  await within(authenticated, 'authentication of NDK')
  const queue = []
  const waiting = []
  await within(
    new Promise((resolve) => {
      const sub = ndk.subscribe({ kinds: [chat], '#h': [h] }, {
        closeOnEose: false, groupable: false, cacheUsage: NDKSubscriptionCacheUsage.ONLY_RELAY,
      })
      sub.on('event', (event) => (waiting.length > 0 ? waiting.shift()(event) : queue.push(event)))
      sub.on('eose', resolve)
    }),
    'EOSE for NDK',
  )
  return {
    pubkey: (await signer.user()).pubkey,
    heard: () => within(queue.length > 0 ? Promise.resolve(queue.shift()) : new Promise((r) => waiting.push(r)), 'live event for NDK'),
    say: async (content) => {
      const event = new NDKEvent(ndk, { kind: chat, content, tags: [['h', h]], created_at: now() })
      await event.publish()
      return event.id
    },
    pending: () => queue.length,
    close: () => { for (const relay of ndk.pool.relays.values()) relay.disconnect() },
  }
}

async function main() {
  const { url, connect, messages } = options()
  const implementation = dialTo(connect)
  useWebSocketImplementation(implementation)
  globalThis.WebSocket = implementation

  const h = `chat-${Date.now()}`
  const alice = new Person()
  const carol = new Person()
  const relay = await alice.connect(url)
  await relay.publish(alice.sign(9007, '', [['h', h], ['name', 'Chat'], ['public'], ['open']]))
  const ears = await listen(relay, [{ kinds: [chat], '#h': [h] }])
  const bob = await speak(url, h)

  // both waits for a message at both ends, where it must be the next: whoever publishes hears it too.
  const said = []
  const took = []
  async function both(id, sent) {
    said.push(id)
    const [a, b] = await Promise.all([ears.next(), bob.heard()])
    took.push(performance.now() - sent)
    if (a.id !== id || b.id !== id) throw new Error(`message ${said.length}: said ${id}, Alice heard ${a.id}, Bob heard ${b.id}`)
  }
  for (let i = 1; i <= messages; i++) {
    let sent = performance.now()
    const event = alice.sign(chat, `Alice ${i}`, [['h', h]])
    await relay.publish(event)
    await both(event.id, sent)
    sent = performance.now()
    await both(await bob.say(`Bob ${i}`), sent)
  }
  if (ears.pending() + bob.pending() > 0) throw new Error('something came twice')

  const later = await carol.connect(url)
  const stored = (await query(later, [{ kinds: [chat], '#h': [h] }])).map((event) => event.id)
  if (stored.length !== said.length || !said.every((id) => stored.includes(id))) {
    throw new Error(`${said.length} messages were said, ${stored.length} are stored`)
  }
  took.sort((a, b) => a - b)
  console.log(`${said.length} messages between nostr-tools and NDK: each heard by both, once and in order, and stored; ` +
    `half within ${Math.round(took[took.length >> 1])} ms, all within ${Math.round(took[took.length - 1])} ms`)
  alice.close()
  carol.close()
  bob.close()
}

main().then(
  () => process.exit(0), // NDK keeps timers
  (error) => {
    console.error(`chat: ${error.message ?? error}`)
    process.exit(1)
  },
)
