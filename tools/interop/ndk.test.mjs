// NDK against a running Apiary: another client stack, with its own ideas about connecting and authenticating.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import NDK, { NDKEvent, NDKKind, NDKPrivateKeySigner, NDKRelayAuthPolicies, NDKRelaySet } from '@nostr-dev-kit/ndk'
import WebSocket from 'ws'
import { now, within } from './client.mjs'
import { readURL, writeURL } from './relays.mjs'

globalThis.WebSocket ??= WebSocket

function client(url) {
  const signer = NDKPrivateKeySigner.generate()
  const ndk = new NDK({ explicitRelayUrls: [url], signer, enableOutboxModel: false })
  ndk.relayAuthDefaultPolicy = NDKRelayAuthPolicies.signIn({ ndk, signer })
  const authenticated = new Promise((resolve) => ndk.pool.on('relay:authed', resolve))
  return { ndk, signer, authenticated }
}

describe('NDK', () => {
  const alice = client(writeURL)
  const bob = client(readURL)

  before(async () => {
    await Promise.all([alice, bob].map(async (c) => {
      await c.ndk.connect(5000)
      await within(c.authenticated, 'authentication')
    }))
  })
  after(() => {
    for (const c of [alice, bob]) for (const relay of c.ndk.pool.relays.values()) relay.disconnect()
  })

  it('receives live what another client publishes', async () => {
    const { pubkey } = await alice.signer.user()
    let received
    const got = new Promise((resolve) => { received = resolve })
    const ready = new Promise((resolve) => {
      const sub = bob.ndk.subscribe({ kinds: [1], authors: [pubkey] }, { closeOnEose: false, groupable: false })
      sub.on('event', received)
      sub.on('eose', resolve)
    })
    await within(ready, 'EOSE')
    const event = new NDKEvent(alice.ndk, { kind: NDKKind.Text, content: 'from NDK', tags: [], created_at: now() })
    await event.publish()
    assert.equal((await within(got, 'live event')).id, event.id)
  })

  it('fetches what is stored', async () => {
    const event = new NDKEvent(alice.ndk, { kind: NDKKind.Text, content: 'stored', tags: [['t', 'ndk']], created_at: now() })
    await event.publish()
    const found = await within(bob.ndk.fetchEvent({ ids: [event.id] }, { groupable: false }), 'stored event')
    assert.equal(found?.content, 'stored')
  })

  it('replaces its profile', async () => {
    const { pubkey } = await alice.signer.user()
    const t = now()
    for (const [name, created_at] of [['first', t - 5], ['second', t]]) {
      await new NDKEvent(alice.ndk, { kind: 0, content: JSON.stringify({ name }), tags: [], created_at }).publish()
    }
    const found = await within(bob.ndk.fetchEvents({ kinds: [0], authors: [pubkey] }, { groupable: false }), 'profile')
    assert.deepEqual([...found].map((e) => JSON.parse(e.content).name), ['second'])
  })

  it('is told why an event is refused', async () => {
    const event = new NDKEvent(alice.ndk, { kind: 1, content: 'from the past', tags: [], created_at: 1000 })
    await event.sign()
    const relays = NDKRelaySet.fromRelayUrls([writeURL], alice.ndk)
    await assert.rejects(event.publish(relays, 5000, 1))
  })
})
