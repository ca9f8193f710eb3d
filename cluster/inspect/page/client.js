// The page's requests to its node, and their rate. The page reaches no other host.

// ms from the begin of a tick to that of the next, and the rest of a hidden page.
const kPeriod = 700, kHiddenRest = 2000;

// After a tick that took so many ms: a node that answers slowly is not asked the less often for it,
// but never without a rest.
export const restAfter = (took, isHidden) =>
  (isHidden ? kHiddenRest : Math.max(50, kPeriod - took));

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class Client {
  constructor() {
    const given = new URLSearchParams(location.hash.slice(1)).get('token');
    if (given) sessionStorage.setItem('troupe-token', given);
    // not in the address bar, where bystanders could read it
    if (given) history.replaceState(null, '', location.pathname);
    this.token = given ?? sessionStorage.getItem('troupe-token') ?? '';
  }

  setToken(token) {
    this.token = token;
    sessionStorage.setItem('troupe-token', token);
  }

  // Returns an answer that not every node has; null if it is missing.
  async find(path, query) {
    try {
      return await this.get(path, query);
    } catch (error) {
      if (error.status === 404 || error.status === 400) return null;
      throw error;
    }
  }

  // JSON. Throws a Refusal with the server's sentence, or with status 0 if there is no answer in
  // time.
  async get(path, query = {}, patience = 5000) {
    const url = `api/${path}${Object.keys(query).length ? `?${new URLSearchParams(query)}` : ''}`;
    let response, json;
    try {
      response = await fetch(url,
        { headers: this.token ? { Authorization: `Bearer ${this.token}` } : {},
          signal: AbortSignal.timeout(patience), cache: 'no-store' });
      json = await response.json();
    } catch (error) {
      if (response && !response.ok)
        throw new Refusal(response.status, `the node answered ${response.status}`);
      throw new Refusal(0, error.name === 'TimeoutError'
        ? `the node has not answered within ${patience / 1000} s` : 'the node does not answer');
    }
    if (!response.ok)
      throw new Refusal(response.status, json.error ?? `the node answered ${response.status}`);
    return json;
  }
}
