// Where the suites' relays are.

// APIARY_RELAYS names one URL per gateway, comma separated. Tests publish through the first and listen
// on the last, so that with several gateways every live event crosses the cluster.
const urls = (process.env.APIARY_RELAYS ?? '').split(',').filter(Boolean)
if (urls.length === 0) throw new Error('APIARY_RELAYS is empty: run `make interop`')
export const writeURL = urls[0]
export const readURL = urls[urls.length - 1]
