// The streams of a bucket, a page at a time.

import { requests, send } from "./api.js";
import { bucketName } from "./names.js";
import { scopeName } from "./scopes.js";
import { session } from "./session.js";
import { forbidden } from "./words.js";

/** As the server has it: {streams, next_cursor, has_more}. */
export const listBucket = async (bucket, after = "", prefix = "") => {
  const name = bucketName(bucket);
  if (!session.allows("list", name)) throw new Error(forbidden(scopeName("read", `${name}/streams`)));
  const response = await send(requests.list(bucket, after, prefix));
  return response.json();
};
