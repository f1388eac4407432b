/** What browsers have and jsdom lacks. */
const { ReadableStream } = require('node:stream/web');
const { TextDecoder, TextEncoder } = require('node:util');

Object.assign(globalThis, { ReadableStream, TextDecoder, TextEncoder });
globalThis.DragEvent ??= class DragEvent extends Event {};
globalThis.CSS ??= { escape: text => text };
globalThis.ResizeObserver ??= class {
  observe() {}
  disconnect() {}
};
globalThis.fetch ??= () => Promise.reject(new TypeError('No network in tests'));
globalThis.Request ??= class Request {};
globalThis.Response ??= class Response {};
globalThis.Headers ??= class Headers {};
globalThis.matchMedia ??= media => ({
  media,
  matches: false,
  addListener() {},
  removeListener() {}
});
globalThis.requestIdleCallback ??= callback => setTimeout(callback);
