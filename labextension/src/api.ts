/** The calls of the REST interface that this extension makes, by name. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { IClient, MakeRequest, respond } from './request';
import { IDemand, IFinding, IHistory, IStatus, IStatusReply, IWhy } from './tokens';

/** What can be asked of a session without a body. */
export type Verb = 'release' | 'park' | 'resume' | 'unpin' | 'stop';

export interface IApi extends IClient {
  /** The whole view; null when nothing changed since `rev`. */
  status(since: number | null, signal: AbortSignal): Promise<IStatus | null>;
  /** The open event stream, resumed after `lastId`. */
  events(lastId: string | null, signal: AbortSignal): Promise<Response>;
  why(session: string): Promise<IWhy>;
  /** The past of a session, or of all that one may see; `from` in seconds since 1970, else seven days. */
  history(query: { session?: string; from?: number }): Promise<IHistory>;
  doctor(): Promise<IFinding[]>;
  /** Seconds until the demand could be met; null: no estimate. */
  estimate(demand: IDemand): Promise<number | null>;
  act(session: string, verb: Verb): Promise<void>;
  pin(session: string, forS: number): Promise<void>;
  move(session: string, device: string): Promise<void>;
  request(session: string, demand: IDemand, apply?: 'restart'): Promise<void>;
  /** The demand for the next kernel of the notebook at that path. */
  wish(path: string, demand: IDemand): Promise<void>;
  /** Admins: empties a device, or offers it again. */
  drain(device: string, drained: boolean): Promise<void>;
}

export function createApi(
  settings: ServerConnection.ISettings,
  makeRequest: MakeRequest = ServerConnection.makeRequest
): IApi {
  const client: IClient = { settings, makeRequest };
  const get = async <T>(path: string): Promise<T> =>
    (await (await respond(client, path)).json()) as T;
  const post = (path: string, body: object = {}): Promise<Response> =>
    respond(client, path, { method: 'POST', body: JSON.stringify(body) });
  const of = (session: string, verb: string): string =>
    `sessions/${encodeURIComponent(session)}/${verb}`;
  return {
    ...client,
    status: async (since, signal) => {
      const response = await respond(client, since === null ? 'status' : `status?since=${since}`, {
        signal
      });
      if (response.status === 304 || response.status === 204) {
        return null;
      }
      return asMaps((await response.json()) as IStatusReply);
    },
    events: (lastId, signal) => {
      const headers: Record<string, string> = { Accept: 'text/event-stream' };
      if (lastId !== null) {
        headers['Last-Event-ID'] = lastId;
      }
      return respond(client, 'events', { headers, signal, cache: 'no-store' });
    },
    why: session => get<IWhy>(of(session, 'why')),
    history: query => get<IHistory>(`history${URLExt.objectToQueryString({ ...query })}`),
    doctor: () => get<IFinding[]>('doctor'),
    estimate: async demand => {
      const response = await post('estimate', demand);
      return ((await response.json()) as { eta_s: number | null }).eta_s;
    },
    act: async (session, verb) => void (await post(of(session, verb))),
    pin: async (session, forS) => void (await post(of(session, 'pin'), { for_s: forS })),
    move: async (session, device) => void (await post(of(session, 'move'), { device })),
    request: async (session, demand, apply) =>
      void (await post(of(session, 'request'), apply ? { ...demand, apply } : demand)),
    wish: async (path, demand) =>
      void (await respond(client, `demands/${URLExt.encodeParts(path)}`, {
        method: 'PUT',
        body: JSON.stringify(demand)
      })),
    drain: async (device, drained) =>
      void (await post(`devices/${encodeURIComponent(device)}/${drained ? 'drain' : 'undrain'}`))
  };
}

/** `GET status` in the form of the event stream: maps keyed by name, uuid and id. */
export function asMaps(reply: IStatusReply): IStatus {
  return {
    ...reply,
    servers: Object.fromEntries(
      reply.servers.map(server => [
        server.name,
        {
          ...server,
          devices: Object.fromEntries(server.devices.map(device => [device.uuid, device]))
        }
      ])
    ),
    sessions: Object.fromEntries(reply.sessions.map(session => [session.id, session]))
  };
}
