/** Server-sent events out of a fetch body; EventSource cannot send Jupyter's token. */

export interface IStreamEvent {
  event: string;
  id: string | null;
  data: string;
}

/** The events of a stream, in order. Ends with the stream; comments (keep-alives) only call `onBytes`. */
export async function* readEvents(
  body: ReadableStream<Uint8Array>,
  onBytes: () => void = () => undefined
): AsyncGenerator<IStreamEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return;
      }
      onBytes();
      text += decoder.decode(value, { stream: true });
      const blocks = text.replace(/\r\n/g, '\n').split('\n\n');
      text = blocks.pop() ?? '';
      for (const block of blocks) {
        const event = parse(block);
        if (event) {
          yield event;
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined); // the stream may have failed already
  }
}

function parse(block: string): IStreamEvent | null {
  let event = 'message';
  let id: string | null = null;
  const data: string[] = [];
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') {
      event = value;
    } else if (field === 'id') {
      id = value;
    } else if (field === 'data') {
      data.push(value);
    }
  }
  return data.length > 0 ? { event, id, data: data.join('\n') } : null;
}
