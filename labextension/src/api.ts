/** The calls of the REST interface that this extension makes, by name. */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';

import { components, paths } from './openapi';
import { IClient, MakeRequest, respond } from './request';
import { IScope } from './readings';
import { IDemand, IFinding, IHistory, IReadings, IStatus, IStatusReply, IWhy } from './tokens';

/** What can be asked of a session without a body. */
export type Verb = 'release' | 'park' | 'resume' | 'unpin' | 'stop';

type Schemas = components['schemas'];
type Method = 'get' | 'post' | 'put';

/** The paths of the document that take a method. */
type Path<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, object> ? P : never;
}[keyof paths];

/** What the document says may be sent to a path. */
type Body<P, M extends Method> =
  P extends Record<M, { requestBody?: { content: { 'application/json': infer T } } }>
    ? T
    : Record<string, never>;

/** The path with its parts filled in; slashes in the path of a notebook stay. */
function filled(path: keyof paths, parts: Record<string, string>): string {
  return path
    .slice(1)
    .replace(/{(\w+)}/g, (_, name: string) =>
      name === 'path' ? URLExt.encodeParts(parts[name]) : encodeURIComponent(parts[name])
    );
}

export interface IApi extends IClient {
  /** The whole view; null when nothing changed since `rev`. */
  status(since: number | null, signal: AbortSignal): Promise<IStatus | null>;
  /** The open event stream, resumed after `lastId`. */
  events(lastId: string | null, signal: AbortSignal): Promise<Response>;
  why(session: string): Promise<IWhy>;
  /** The past of a session, or of all that one may see; `from` in seconds since 1970, else seven days. */
  history(query: { session?: string; user?: string; from?: number }): Promise<IHistory>;
  readings(scope: IScope): Promise<IReadings>;
  doctor(): Promise<IFinding[]>;
  /** Seconds until the demand could be met; null: no estimate. */
  estimate(demand: IDemand): Promise<number | null>;
  act(session: string, verb: Verb): Promise<void>;
  pin(session: string, forS: number): Promise<void>;
  move(session: string, device: string): Promise<void>;
  request(session: string, demand: IDemand, apply?: 'restart'): Promise<void>;
  /** The demand for the next kernel of the notebook at that path. */
  wish(path: string, demand: Partial<IDemand>): Promise<void>;
  /** Admins: empties a device, or offers it again. */
  drain(device: string, drained: boolean): Promise<void>;
}

export function createApi(
  settings: ServerConnection.ISettings,
  makeRequest: MakeRequest,
  root: string = URLExt.join(settings.baseUrl, 'gpushare/api/v1')
): IApi {
  const client: IClient = { settings, makeRequest, root };
  const get = async <T>(
    path: Path<'get'>,
    parts: Record<string, string> = {},
    query: Record<string, string | number | undefined> = {}
  ): Promise<T> => {
    const asked = Object.entries(query).filter(([, value]) => value !== undefined);
    const url = filled(path, parts) + URLExt.objectToQueryString(Object.fromEntries(asked));
    return (await (await respond(client, url)).json()) as T;
  };
  const post = <P extends Path<'post'>>(
    path: P,
    parts: Record<string, string> = {},
    body: Partial<Body<paths[P], 'post'>> = {}
  ): Promise<Response> =>
    respond(client, filled(path, parts), { method: 'POST', body: JSON.stringify(body) });
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
    why: session => get<IWhy>('/sessions/{id}/why', { id: session }),
    history: query => get<IHistory>('/history', {}, query),
    readings: scope => get<IReadings>('/readings', {}, scope),
    doctor: () => get<IFinding[]>('/doctor'),
    estimate: async demand => {
      const response = await post('/estimate', {}, demand);
      return ((await response.json()) as Schemas['Estimate']).eta_s;
    },
    act: async (session, verb) => void (await post(`/sessions/{id}/${verb}`, { id: session })),
    pin: async (session, forS) =>
      void (await post('/sessions/{id}/pin', { id: session }, { for_s: forS })),
    move: async (session, device) =>
      void (await post('/sessions/{id}/move', { id: session }, { device })),
    request: async (session, demand, apply) =>
      void (await post(
        '/sessions/{id}/request',
        { id: session },
        apply ? { ...demand, apply } : demand
      )),
    wish: async (path, demand) =>
      void (await respond(client, filled('/demands/{path}', { path }), {
        method: 'PUT',
        body: JSON.stringify(demand)
      })),
    drain: async (device, drained) =>
      void (await post(drained ? '/devices/{uuid}/drain' : '/devices/{uuid}/undrain', {
        uuid: device
      }))
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
