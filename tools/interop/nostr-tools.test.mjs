// nostr-tools against a running Apiary: what an ordinary client does all day.
import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { Relay } from 'nostr-tools/relay'
import { matchFilter } from 'nostr-tools/filter'
import { verifyEvent } from 'nostr-tools/pure'
import { Person, listen, now, query, within } from './client.mjs'
import { readURL, writeURL } from './relays.mjs'

describe('nostr-tools', () => {
  const alice = new Person()
  const bob = new Person()
  let writer, reader

  before(async () => {
    writer = await alice.connect(writeURL)
    reader = await bob.connect(readURL)
  })
  after(() => {
    alice.close()
    bob.close()
  })

  it('is told who the relay is (NIP-11)', async () => {
    const response = await fetch(writeURL.replace(/^ws/, 'http'), { headers: { accept: 'application/nostr+json' } })
    assert.equal(response.status, 200)
    assert.equal(response.headers.get('access-control-allow-origin'), '*')
    const info = await response.json()
    for (const nip of [1, 9, 11, 42]) assert.ok(info.supported_nips.includes(nip), `NIP-${nip} is listed`)
    assert.equal(info.limitation.auth_required, true)
    assert.equal(info.limitation.max_subscriptions, 1024)
  })

  it('is refused before it authenticates (NIP-42)', async () => {
    const relay = new Relay(writeURL)
    await relay.connect()
    await assert.rejects(relay.publish(alice.sign(1, 'unauthenticated')), /auth-required:/)
    const reason = await within(
      new Promise((resolve) => relay.subscribe([{ kinds: [1] }], { onclose: resolve })),
      'CLOSED',
    )
    assert.match(reason, /^auth-required:/)
    relay.close()
  })

  it('publishes, receives live on another gateway, and finds it stored', async () => {
    const filter = { kinds: [1], authors: [alice.pubkey], '#t': ['live'] }
    const live = await listen(reader, [filter])
    const event = alice.sign(1, 'hello <>& \u2028 "quoted" \\ \u{1F41D}', [['t', 'live']])
    await writer.publish(event)
    const got = await live.next()
    assert.equal(got.id, event.id)
    assert.equal(got.content, event.content)
    assert.ok(verifyEvent({ ...got }))
    live.close()

    const stored = await query(reader, [{ ids: [event.id] }])
    assert.deepEqual(stored.map((e) => e.id), [event.id])
    assert.ok(matchFilter(filter, stored[0]))
  })

  it('answers a duplicate as a success', async () => {
    const event = alice.sign(1, 'once')
    await writer.publish(event)
    const other = await alice.connect(readURL)
    assert.match(await other.publish(event), /^duplicate:/)
    assert.equal((await query(reader, [{ ids: [event.id] }])).length, 1)
  })

  it('refuses a forged signature', async () => {
    const event = alice.sign(1, 'forged')
    const broken = { ...event, sig: event.sig.replace(/^./, (c) => (c === '0' ? '1' : '0')) }
    await assert.rejects(writer.publish(broken), /invalid:/)
  })

  it('orders newest first and pages by until and limit', async () => {
    const base = now() - 100
    const events = []
    for (let i = 0; i < 10; i++) events.push(alice.sign(1, `page ${i}`, [['t', 'paging']], base + Math.floor(i / 2)))
    await Promise.all(events.map((e) => writer.publish(e)))
    const want = [...events].sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1)).map((e) => e.id)
    const filter = { kinds: [1], '#t': ['paging'], authors: [alice.pubkey] }
    assert.deepEqual((await query(reader, [filter])).map((e) => e.id), want)
    assert.deepEqual((await query(reader, [{ ...filter, limit: 3 }])).map((e) => e.id), want.slice(0, 3))
    assert.deepEqual((await query(reader, [{ ...filter, until: base + 1 }])).map((e) => e.id), want.slice(6))
  })

  it('keeps only the newest version of replaceable and addressable events', async () => {
    for (const [kind, tags] of [[0, []], [30023, [['d', 'article']]]]) {
      const t = now()
      const older = alice.sign(kind, '{"name":"older"}', tags, t - 10)
      const newer = alice.sign(kind, '{"name":"newer"}', tags, t)
      const oldest = alice.sign(kind, '{"name":"oldest"}', tags, t - 20)
      await writer.publish(older)
      await writer.publish(newer)
      await writer.publish(oldest)
      const stored = await query(reader, [{ kinds: [kind], authors: [alice.pubkey] }])
      assert.deepEqual(stored.map((e) => e.id), [newer.id], `kind ${kind}`)
    }
  })

  it('deletes its own events for good, and nobody else’s (NIP-09)', async () => {
    const mine = alice.sign(1, 'to be deleted')
    await writer.publish(mine)
    const bobWriter = await bob.connect(writeURL)
    await bobWriter.publish(bob.sign(5, '', [['e', mine.id]]))
    assert.equal((await query(reader, [{ ids: [mine.id] }])).length, 1)
    const deletion = alice.sign(5, 'mistake', [['e', mine.id], ['k', '1']])
    await writer.publish(deletion)
    assert.equal((await query(reader, [{ ids: [mine.id] }])).length, 0)
    assert.equal((await query(reader, [{ ids: [deletion.id] }])).length, 1)
    await assert.rejects(writer.publish(mine), /blocked:/)
  })

  it('delivers ephemeral events and does not store them', async () => {
    const live = await listen(reader, [{ kinds: [20100], authors: [alice.pubkey] }])
    const event = alice.sign(20100, 'typing')
    await writer.publish(event)
    assert.equal((await live.next()).id, event.id)
    live.close()
    assert.equal((await query(reader, [{ kinds: [20100], authors: [alice.pubkey] }])).length, 0)
  })

  it('counts (NIP-45)', async () => {
    for (let i = 0; i < 3; i++) await writer.publish(alice.sign(1, `count ${i}`, [['t', 'counting']]))
    assert.equal(await within(reader.count([{ kinds: [1], '#t': ['counting'], authors: [alice.pubkey] }], {}), 'COUNT'), 3)
  })

  it('talks in an open channel (NIP-29)', async () => {
    const h = `interop-${now()}-${alice.pubkey.slice(0, 8)}`
    await writer.publish(alice.sign(9007, '', [['h', h], ['name', 'Interop']]))
    const live = await listen(reader, [{ kinds: [9], '#h': [h] }])
    const global = await listen(reader, [{ kinds: [1, 9], authors: [alice.pubkey], limit: 0 }])
    const message = alice.sign(9, 'in the channel', [['h', h]])
    await writer.publish(message)
    assert.equal((await live.next()).id, message.id)
    const after = alice.sign(1, 'not in the channel')
    await writer.publish(after)
    assert.equal((await global.next()).id, after.id, 'a global filter does not see channel events live')
    assert.equal(live.pending(), 0)
  })

  it('keeps a subscription with limit 0 open and sends EOSE at once', async () => {
    const live = await listen(reader, [{ kinds: [1], authors: [alice.pubkey], limit: 0 }])
    assert.equal(live.pending(), 0)
    const event = alice.sign(1, 'after limit 0')
    await writer.publish(event)
    assert.equal((await live.next()).id, event.id)
    live.close()
  })

  it('serves 200 clients at once', async () => {
    const clients = await Promise.all(Array.from({ length: 200 }, () => new Person()))
    const tag = `crowd-${alice.pubkey.slice(0, 8)}`
    const listening = []
    for (let i = 0; i < clients.length; i += 25) {
      listening.push(
        ...(await Promise.all(
          clients.slice(i, i + 25).map(async (person, n) => {
            const relay = await person.connect((i + n) % 2 ? writeURL : readURL)
            return { person, relay, live: await listen(relay, [{ kinds: [1], '#t': [tag] }]) }
          }),
        )),
      )
    }
    const published = new Set()
    await Promise.all(
      listening.slice(0, 10).map(async ({ person, relay }) => {
        const event = person.sign(1, 'hello all', [['t', tag]])
        published.add(event.id)
        await relay.publish(event)
      }),
    )
    await Promise.all(
      listening.map(async ({ live }) => {
        const seen = new Set()
        while (seen.size < published.size) {
          const event = await live.next(30000)
          assert.ok(!seen.has(event.id), 'no event twice')
          seen.add(event.id)
        }
        assert.deepEqual([...seen].sort(), [...published].sort())
      }),
    )
    clients.forEach((person) => person.close())
  })
})
