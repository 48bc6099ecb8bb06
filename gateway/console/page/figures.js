// From what the gateway has counted since its start to what happened in the last second (pure).

export const READ_VERDICTS = ["hit", "stale", "hub", "revalidated", "miss", "pass", "refused", "error"];

const total = (counts) => Object.values(counts).reduce((sum, count) => sum + count, 0);

/** A counter that fell was started anew: a worker came back. */
const grown = (now, before) => Math.max(0, now - before);

const grownBy = (now, before) =>
  Object.fromEntries(Object.keys(now).map((key) => [key, grown(now[key], before[key] ?? 0)]));

/** The time under which a part of the requests stayed, by their buckets, in seconds. */
export const quantile = (counts, bounds, part) => {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (!all) return null;
  let left = all * part;
  for (const [at, count] of counts.entries()) {
    if (left <= count && count) {
      const low = at ? bounds[at - 1] : 0;
      const high = bounds[at] ?? bounds.at(-1);
      return low + (high - low) * (left / count);
    }
    left -= count;
  }
  return bounds.at(-1);
};

/** What happened between two answers of /console/stats, a second on average. */
export const between = (before, now, seconds) => {
  const reads = grownBy(now.reads, before.reads);
  const all = total(reads);
  const counts = now.latency_counts.map((count, at) => grown(count, before.latency_counts[at] ?? 0));
  const collapsed = grown(now.collapsed, before.collapsed);
  const share = (count) => (all ? Math.min(100, (100 * count) / all) : null);
  return {
    requests: (all + total(grownBy(now.writes, before.writes))) / seconds,
    upstream: total(grownBy(now.upstream, before.upstream)) / seconds,
    deliveries: grown(now.deliveries, before.deliveries) / seconds,
    hits: share((reads.hit ?? 0) + (reads.stale ?? 0)),
    hub: share(reads.hub ?? 0),
    collapsed: share(collapsed),
    readers: now.readers,
    connections: now.connections,
    p50: quantile(counts, now.latency_bounds_s, 0.5),
    p95: quantile(counts, now.latency_bounds_s, 0.95),
    p99: quantile(counts, now.latency_bounds_s, 0.99),
  };
};

/** Since the start: how many requests of readers came to one read at the origin. What hubs sent is
    not added: an answered long-poll is a read already. */
export const collapseFactor = ({ reads, upstream }) => {
  const asked = total(reads) - (reads.refused ?? 0) - (reads.error ?? 0);
  const passed = (upstream.read ?? 0) + (upstream.live ?? 0);
  return asked && passed ? asked / passed : null;
};

export const readShare = (now, ...verdicts) => {
  const all = total(now.reads);
  return all ? (100 * verdicts.reduce((sum, verdict) => sum + (now.reads[verdict] ?? 0), 0)) / all : null;
};
