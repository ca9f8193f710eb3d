// What the page asks its node for, and how often. Nothing else is ever reached.

// ms from the begin of a tick to that of the next, and how long a page rests that nobody sees.
const kPeriod = 700, kHiddenRest = 2000;

// After a tick that took so many ms: a node that answers slowly is not asked the less often for it, but never without a rest.
export const restAfter = (took, isHidden) => (isHidden ? kHiddenRest : Math.max(50, kPeriod - took));

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
    if (given) history.replaceState(null, '', location.pathname);  // not in the address bar for whoever looks over a shoulder
    this.token = given ?? sessionStorage.getItem('troupe-token') ?? '';
  }

  setToken(token) {
    this.token = token;
    sessionStorage.setItem('troupe-token', token);
  }

  // What not every node has: null where there is none.
  async find(path, query) {
    try {
      return await this.get(path, query);
    } catch (error) {
      if (error.status === 404 || error.status === 400) return null;
      throw error;
    }
  }

  // JSON. Throws a Refusal with the server's sentence, or with status 0 if there is no answer in time.
  async get(path, query = {}, patience = 5000) {
    const url = `api/${path}${Object.keys(query).length ? `?${new URLSearchParams(query)}` : ''}`;
    let response, json;
    try {
      response = await fetch(url, { headers: this.token ? { Authorization: `Bearer ${this.token}` } : {}, signal: AbortSignal.timeout(patience), cache: 'no-store' });
      json = await response.json();
    } catch (error) {
      if (response && !response.ok) throw new Refusal(response.status, `the node answered ${response.status}`);
      throw new Refusal(0, error.name === 'TimeoutError' ? `the node has not answered within ${patience / 1000} s` : 'the node does not answer');
    }
    if (!response.ok) throw new Refusal(response.status, json.error ?? `the node answered ${response.status}`);
    return json;
  }
}
