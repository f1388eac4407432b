/** What the search field understands: words, and `model:` `server:` `free>0.5` `mem>40`. Pure. */
import { modelName } from './format';
import { IPlace } from './lookup';
import { freeShare } from './view';

const GIB = 2 ** 30;

type Test = (place: IPlace) => boolean;

/** GiB of memory that nobody uses; null where it was not read. */
function freeMemory({ device }: IPlace): number | null {
  return device.memory_total === null || device.memory_used === null
    ? null
    : (device.memory_total - device.memory_used) / GIB;
}

const FIGURES: Record<string, (place: IPlace) => number | null> = {
  free: ({ server, device }) => freeShare(server, device),
  mem: freeMemory
};

function testOf(word: string): Test {
  const named = /^(model|server):(.*)$/.exec(word);
  if (named) {
    const [, what, part] = named;
    return ({ server, device }) =>
      (what === 'model' ? modelName(device.model) : server.name).toLowerCase().includes(part);
  }
  const compared = /^(free|mem)([<>])(\d*\.?\d+)$/.exec(word);
  if (compared) {
    const [, what, sign, limit] = compared;
    return place => {
      const value = FIGURES[what](place);
      return value !== null && (sign === '>' ? value > Number(limit) : value < Number(limit));
    };
  }
  return ({ server, device }) =>
    `${device.model} ${modelName(device.model)} ${server.name} gpu ${device.index} ${device.uuid}`
      .toLowerCase()
      .includes(word);
}

/** True for the devices that every word of the query is true of; an empty query is true of all. */
export function matcher(query: string): Test {
  const tests = query.toLowerCase().split(/\s+/).filter(Boolean).map(testOf);
  return place => tests.every(test => test(place));
}
