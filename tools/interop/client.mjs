// What the suites and chat.mjs share: people, and small promises around nostr-tools.
import { useWebSocketImplementation, Relay } from 'nostr-tools/relay'
import { finalizeEvent, generateSecretKey, getPublicKey } from 'nostr-tools/pure'
import WebSocket from 'ws'

useWebSocketImplementation(WebSocket)

export const now = () => Math.floor(Date.now() / 1000)

// A person has a key, and opens authenticated connections.
export class Person {
  constructor() {
    this.secret = generateSecretKey()
    this.pubkey = getPublicKey(this.secret)
    this.open = []
  }

  sign(kind, content, tags = [], created_at = now()) {
    return finalizeEvent({ kind, content, tags, created_at }, this.secret)
  }

  async connect(url) {
    const relay = new Relay(url)
    // The library verifies signatures on this thread, which can keep it from reading an OK for a while.
    relay.publishTimeout = 60000
    this.open.push(relay)
    const challenged = new Promise((resolve) => {
      relay.onauth = async (template) => {
        resolve()
        return finalizeEvent(template, this.secret)
      }
    })
    await relay.connect()
    await within(challenged, 'AUTH challenge')
    await within(relay.auth(async (template) => finalizeEvent(template, this.secret)), 'OK to AUTH')
    return relay
  }

  close() {
    for (const relay of this.open) relay.close()
  }
}

// within rejects when the promise takes longer than a person would wait.
export function within(promise, what, ms = 15000) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} within ${ms} ms`)), ms)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

// query returns the stored events and closes the subscription.
export function query(relay, filters) {
  return within(
    new Promise((resolve, reject) => {
      const events = []
      let done = false
      const sub = relay.subscribe(filters, {
        onevent: (event) => events.push(event),
        oneose: () => {
          done = true
          sub.close()
          resolve(events)
        },
        onclose: (reason) => {
          if (!done) reject(new Error(`CLOSED ${reason}`))
        },
      })
    }),
    'EOSE',
  )
}

// listen subscribes and resolves, after EOSE, to an object whose next() gives the live events in order.
export function listen(relay, filters) {
  const queue = []
  const waiting = []
  return within(
    new Promise((resolve, reject) => {
      let live = false
      const sub = relay.subscribe(filters, {
        onevent: (event) => {
          if (waiting.length > 0) waiting.shift()(event)
          else queue.push(event)
        },
        oneose: () => {
          live = true
          resolve({
            next: (ms) =>
              within(
                queue.length > 0 ? Promise.resolve(queue.shift()) : new Promise((r) => waiting.push(r)),
                'live event',
                ms,
              ),
            pending: () => queue.length,
            close: () => sub.close(),
          })
        },
        onclose: (reason) => {
          if (!live) reject(new Error(`CLOSED ${reason}`))
        },
      })
    }),
    'EOSE',
  )
}
