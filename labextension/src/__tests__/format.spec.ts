import * as format from '../format';
import { GIB, trans } from './builders';

test.each([
  [0.5, '50%'],
  [0, '0%'],
  [null, '–']
])('a share of %p is %p', (value, text) => expect(format.percent(value)).toBe(text));

test.each([
  [31.2 * GIB, '31.2 GiB'],
  [120.4 * GIB, '120 GiB'],
  [0, '0.0 GiB'],
  [null, '–']
])('%p bytes are %p', (value, text) => expect(format.memory(value)).toBe(text));

test('memory in use stands against its total, and what was not read is a dash', () => {
  expect(format.occupied(47 * GIB, 80 * GIB)).toBe('47 / 80');
  expect(format.occupied(0.4 * GIB, 80 * GIB)).toBe('0.4 / 80');
  expect(format.occupied(0, 80 * GIB)).toBe('0 / 80');
  expect(format.occupied(null, 80 * GIB)).toBe('– / 80');
  expect(format.occupied(null, null)).toBe('– / –');
});

test.each([
  [0.75, '0.75'],
  [3, '3'],
  [2.5, '2.5'],
  [1.7000000001, '1.7']
])('%p devices are %p', (value, text) => expect(format.devices(value)).toBe(text));

test.each([
  [5040, '1.4 GPU-h'],
  [90, '90 GPU-s'],
  [null, '–']
])('%p GPU-seconds are charged as %p', (value, text) => expect(format.charged(value)).toBe(text));

test.each([
  [24, '0:24'],
  [23.2, '0:24'],
  [0, '0:00'],
  [-3, '0:00'],
  [125, '2:05'],
  [3725, '1:02:05']
])('a countdown of %p s is %p', (value, text) => expect(format.clock(value)).toBe(text));

test.each([
  [null, 'no estimate yet'],
  [59, 'under a minute'],
  [180, 'about 3 min'],
  [5400, 'about 90 min'],
  [5401, 'more than an hour']
])('a wait of %p s is %p', (value, text) => expect(format.about(value, trans)).toBe(text));

test.each([
  [0.2, 'about 1 s'],
  [2.2, 'about 2 s'],
  [60, 'about 1 min']
])('what comes in %p s comes in %p', (value, text) => expect(format.soon(value, trans)).toBe(text));

test.each([
  [50, '50 s'],
  [310, '5 min'],
  [7300, '2 h']
])('%p s lasted %p', (value, text) => expect(format.span(value, trans)).toBe(text));

test('a short while is told to the second', () => {
  expect(format.exactSpan(250, trans)).toBe('4 min 10 s');
  expect(format.exactSpan(1250, trans)).toBe('20 min');
});

test.each([
  [1, '1st'],
  [2, '2nd'],
  [3, '3rd'],
  [4, '4th'],
  [11, '11th'],
  [22, '22nd']
])('place %p is %p', (place, text) => expect(format.ordinal(place, trans)).toBe(text));

test.each([
  ['NVIDIA A100-SXM4-80GB', 'A100 80GB', 'A100'],
  ['NVIDIA H100 80GB HBM3', 'H100 80GB', 'H100'],
  ['NVIDIA GeForce RTX 4090', 'RTX 4090', 'RTX 4090'],
  ['Tesla T4', 'T4', 'T4'],
  ['NVIDIA L40S', 'L40S', 'L40S'],
  ['NVIDIA A100-PCIE-40GB', 'A100 40GB', 'A100'],
  ['NVIDIA A100-SXM4-80GB MIG 1g.10gb', 'A100 80GB MIG 1g.10gb', 'A100']
])('%p is known as %p, in short %p', (model, name, short) => {
  expect(format.modelName(model)).toBe(name);
  expect(format.shortModel(model)).toBe(short);
});

test('of a long name the end stays, and .ipynb is dropped', () => {
  expect(format.nameParts('finetune_llama3-8b_lora-r16_v7-final.ipynb')).toEqual([
    'finetune_llama3-8b_lora-r16',
    '_v7-final'
  ]);
  expect(format.nameParts('mnist.ipynb')).toEqual(['mnist', '']);
});
