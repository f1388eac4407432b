/** The one place that talks HTTP. */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';

export type MakeRequest = typeof ServerConnection.makeRequest;

/** The service was asked and said no; `message` is the server's own sentence. */
export class Refusal extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly reason: string
  ) {
    super(message);
  }
}

/** The service could not be reached. */
export class Unanswered extends Error {}

export interface IClient {
  readonly settings: ServerConnection.ISettings;
  /** `ServerConnection.makeRequest`, or what does the same where there is no Jupyter server. */
  readonly makeRequest: MakeRequest;
  /** The address below which all paths lie. */
  readonly root: string;
}

/**
 * The answer to a request below our API. Looking never counts as activity of the server (design rule 6).
 *
 * Raises Refusal for an answer that is not 2xx or 304, Unanswered where there is none.
 */
export async function respond(
  client: IClient,
  path: string,
  init: RequestInit = {}
): Promise<Response> {
  const url = URLExt.join(client.root, path);
  const looked = url + (url.includes('?') ? '&' : '?') + 'no_track_activity=1';
  let response: Response;
  try {
    response = await client.makeRequest(looked, init, client.settings);
  } catch (error) {
    throw error instanceof TypeError ? new Unanswered(error.message) : error;
  }
  if (!response.ok && response.status !== 304) {
    throw await refusal(response);
  }
  return response;
}

async function refusal(response: Response): Promise<Refusal> {
  const text = await response.text();
  try {
    const body = JSON.parse(text) as { message?: string; reason?: string };
    return new Refusal(body.message ?? response.statusText, response.status, body.reason ?? '');
  } catch {
    return new Refusal(response.statusText, response.status, ''); // a proxy's HTML page, not our JSON
  }
}
