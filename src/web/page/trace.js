// A trace in a field: the name of its file, and what follows at its end. The API opens no file, so the content comes from a file that is
// chosen on the page.

// The longest content that the API takes, in bytes.
const LONGEST = 64 * 1024;
const ENDS = ["loop", "hold", "clear"];

const isTrace = (value) => typeof value === "object" && value !== null && "file" in value;

// Formats a trace for its field: "drive.csv", or "drive.csv,hold".
export const traceText = ({ file, end }) => (end && end !== ENDS[0] ? `${file},${end}` : file);

// Returns the trace that a text names: the known one, perhaps with another end. Any other text stays a text, which the API refuses.
export function named(text, known) {
  const [file, end, ...more] = text.split(",");
  const isKnown = isTrace(known) && file === known.file && !more.length && (end === undefined || ENDS.includes(end));
  return isKnown ? { ...known, end: end ?? ENDS[0] } : text;
}

// Reads a trace from a chosen file.
export async function read(file) {
  if (file.size > LONGEST) throw new Error(`${file.name} has ${file.size} bytes: at most ${LONGEST} are allowed here; cut it with farwire trace --until`);
  return { file: file.name.replaceAll(",", "_"), content: await file.text() };
}

// Takes over the form in which a link has the traces of a draft that was applied to it.
export function adopt(draft, inForce) {
  for (const [own, its] of [[draft, inForce], [draft.up, inForce.up], [draft.down, inForce.down]]) {
    if (isTrace(own?.trace) && own.trace.file === its?.trace?.file) own.trace = structuredClone(its.trace);
  }
  for (const key of ["rules", "hops"]) {
    draft[key]?.forEach((own, number) => inForce[key]?.[number] && adopt(own, inForce[key][number]));
  }
}
