// What the status of an answer means, at each door of the portal: `session` (JSON for whoever is
// signed in), `pack` (many files in one body), `address` (of one upload; who knows it may send).
//   again    it has ended there: declare it anew
//   closed   the dataset takes no files any more
//   cut      nothing certain is known of what was done: ask, then go on
//   damaged  the bytes are not those of their checksum: send the piece again
//   fault    the portal failed at it: send the piece again, a few times
//   gone     it is not there
//   moved    the next byte is elsewhere: ask where
//   no-pack  not in one body: send each file alone
//   room     the quota or the disk is full
//   sign-in  the session has ended
//   stop     asking again is of no use
import { Cut, Refused } from "./upload-http.js";

const DOORS = ["session", "pack", "address"];
const KINDS = {
  401: ["sign-in", "sign-in", "stop"],
  403: ["sign-in", "sign-in", "stop"],
  404: ["gone", "no-pack", "again"],
  408: ["cut", "cut", "cut"],
  409: ["closed", "closed", "moved"],
  410: ["stop", "no-pack", "again"],
  429: ["cut", "cut", "cut"],
  460: ["stop", "no-pack", "damaged"],
  500: ["cut", "cut", "fault"],
  501: ["cut", "no-pack", "cut"],
  507: ["room", "room", "room"],
};
const BELOW_500 = ["stop", "no-pack", "stop"];
const FROM_500_ON = ["cut", "cut", "cut"];
const WHOLE_FILE = ["stop", "no-pack", "again"]; // 460 where it is about the digest of a whole file

// The kind of {status, body}; "" for one that did what was asked.
export function meaning(door, { status, body }) {
  if (status >= 200 && status < 300) return "";
  const row = status === 460 && body?.error === "digest_mismatch" ? WHOLE_FILE : KINDS[status];
  return (row ?? (status < 500 ? BELOW_500 : FROM_500_ON))[DOORS.indexOf(door)];
}

// The answer, if it did what was asked. Throws Cut or Refused, with the portal's sentence.
export function check(door, answer) {
  const kind = meaning(door, answer);
  if (!kind) return answer;
  throw kind === "cut" ? new Cut(answer.message) : new Refused(kind, answer.message);
}
