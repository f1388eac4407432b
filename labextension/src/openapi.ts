/* Made by `jlpm api` from the server's OpenAPI document; not edited by hand. */
export type paths = {
  '/events': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /**
     * What changes, as server-sent events
     * @description Events `status` (a whole view, its lists as maps), `patch` (a JSON merge patch against the one before), `decision` and `warning`. Their id is `rev`; a client that comes back sends the last one it saw.
     */
    get: operations['get_events'];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/status': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /** Servers, devices, sessions and the queue */
    get: operations['get_status'];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /** One session */
    get: operations['get_sessions_id'];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/why': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /** Why it is where it is */
    get: operations['get_sessions_id_why'];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/request': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** Change the demand of a live session */
    post: operations['post_sessions_id_request'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/release': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** Give back */
    post: operations['post_sessions_id_release'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/park': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** Park now */
    post: operations['post_sessions_id_park'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/resume': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** Bring back */
    post: operations['post_sessions_id_resume'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/pin': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** Keep it from being taken for a while */
    post: operations['post_sessions_id_pin'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/unpin': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** End the keeping */
    post: operations['post_sessions_id_unpin'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/move': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** Continue on another device of the same server */
    post: operations['post_sessions_id_move'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/stop': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** End a kernel, or what an ended server left */
    post: operations['post_sessions_id_stop'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/pool': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /** Its pool */
    get: operations['get_sessions_id_pool'];
    put?: never;
    /** A pool of GPUs over servers for this notebook */
    post: operations['post_sessions_id_pool'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/pool/start': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** A process on each GPU of its pool */
    post: operations['post_sessions_id_pool_start'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/sessions/{id}/pool/end': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** End its pool */
    post: operations['post_sessions_id_pool_end'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/demands/{path}': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    /** The demand for the next kernel of that notebook */
    put: operations['put_demands_path'];
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/doctor': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /** What works here, what does not, and the fix */
    get: operations['get_doctor'];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/estimate': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** When a demand would fit */
    post: operations['post_estimate'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/history': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /** Utilisation, shares and GPU-seconds */
    get: operations['get_history'];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/readings': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /** The last hour of devices */
    get: operations['get_readings'];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/openapi.json': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /** This description */
    get: operations['get_openapi_json'];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/devices/{uuid}': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    /** One device */
    get: operations['get_devices_uuid'];
    put?: never;
    post?: never;
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/devices/{uuid}/drain': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** Empty a device */
    post: operations['post_devices_uuid_drain'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/devices/{uuid}/undrain': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** Offer it again */
    post: operations['post_devices_uuid_undrain'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
  '/devices/{uuid}/inject': {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    get?: never;
    put?: never;
    /** A fault for a simulated device */
    post: operations['post_devices_uuid_inject'];
    delete?: never;
    options?: never;
    head?: never;
    patch?: never;
    trace?: never;
  };
};
export type webhooks = Record<string, never>;
export type components = {
  schemas: {
    /** Status */
    Status: {
      version: string;
      rev: number;
      /** @enum {unknown} */
      mode: 'embedded' | 'hub' | 'socket';
      simulated: boolean;
      user: string;
      admin: boolean;
      degraded: components['schemas']['Finding'][];
      servers: components['schemas']['ServerView'][];
      sessions: components['schemas']['SessionView'][];
      queue: (string | null)[];
      warn_before_s: number;
      stop_warn_s: number;
      summary: components['schemas']['Summary'];
    };
    /**
     * Finding
     * @description Something that does not work as it should.
     */
    Finding: {
      /** @enum {unknown} */
      code: 'broker' | 'bus' | 'disk' | 'ledger' | 'nvml';
      message: string;
    };
    /** ServerView */
    ServerView: {
      name: string;
      /** @enum {unknown} */
      state: 'down' | 'unknown' | 'up';
      age_s: number | null;
      devices: components['schemas']['DeviceView'][];
    };
    /** DeviceView */
    DeviceView: {
      uuid: string;
      index: number;
      model: string;
      /** @enum {unknown} */
      state: 'draining' | 'failing' | 'healthy' | 'lost' | 'unknown';
      reason: string | null;
      /** @enum {unknown} */
      sharing: 'exclusive' | 'mig' | 'mps' | 'timeslice';
      /** @enum {unknown} */
      enforced: 'ceiling' | 'partition' | 'target';
      in_pool: boolean;
      can_park: boolean;
      cannot_park: string | null;
      memory_total: number | null;
      memory_used: number | null;
      memory_unaccounted: number | null;
      utilization: number | null;
      memory_utilization: number | null;
      temperature_c: number | null;
      temperature_limit_c: number | null;
      power_w: number | null;
      power_limit_w: number | null;
      age_s: number | null;
      /** @default null */
      pcie_rx_gb_s: number | null;
      /** @default null */
      pcie_tx_gb_s: number | null;
      /** @default null */
      nvlink_rx_gb_s: number | null;
      /** @default null */
      nvlink_tx_gb_s: number | null;
      allocated: number;
      other_shares: number[];
      others: components['schemas']['OtherProcess'][];
    };
    /**
     * OtherProcess
     * @description What holds a device besides its sessions. `pid` and `owner` are null without the admin scope.
     */
    OtherProcess: {
      pid: number | null;
      owner: string | null;
      memory: number | null;
      /** @enum {unknown} */
      why: 'foreign' | 'leftover' | 'off-lease';
      /** @default null */
      session: string | null;
    };
    /** SessionView */
    SessionView: {
      id: string;
      user: string;
      mine: boolean;
      server: string | null;
      label: string;
      path: string | null;
      /** @enum {unknown} */
      kind: 'compute' | 'data' | 'mixed' | 'unknown';
      /** @enum {unknown} */
      horizon: 'bursty' | 'long' | 'short';
      /** @enum {unknown} */
      state:
        | 'active'
        | 'bound'
        | 'dead'
        | 'idle'
        | 'lost'
        | 'none'
        | 'parked'
        | 'parking'
        | 'resuming'
        | 'waiting';
      devices: components['schemas']['SessionDevice'][];
      guarantee: number;
      limit: number;
      idle_s: number | null;
      reclaim_in_s: number | null;
      pinned_until_s: number | null;
      queue_position: number | null;
      eta_s: number | null;
      waiting_s: number | null;
      demand: components['schemas']['Demand'];
      parked_bytes: number | null;
      moved_bytes: number | null;
      next: components['schemas']['Next'];
      charged_gpu_s: number;
      message: string;
      /** @default false */
      borrowed: boolean;
      /**
       * @default ask
       * @enum {unknown}
       */
      gate: 'ask' | 'open';
      /** @default null */
      singleuser: string | null;
    };
    /** SessionDevice */
    SessionDevice: {
      uuid: string;
      share: number;
      memory_used: number | null;
      utilization: number | null;
    };
    /**
     * Demand
     * @description What a session asks for (contract.md section 3).
     *
     *     `gpus`: 0 none; below 1 that share of one device is guaranteed and may burst to all of it; a whole number n
     *     asks for n devices, each guaranteed whole and lent to others while idle.
     */
    Demand: {
      /** @default 0.1 */
      gpus: number;
      /** @default null */
      gpus_max: number | null;
      /** @default false */
      exclusive: boolean;
      /** @default null */
      memory: number | null;
      /** @default null */
      duration_s: number | null;
      /** @default null */
      cpus: number | null;
      /** @default null */
      host_memory: number | null;
      /**
       * @default {
       *       "model": null,
       *       "server": null
       *     }
       */
      constraints: components['schemas']['Constraints'];
      /** @default [] */
      near: string[];
      /** @default null */
      kind: ('compute' | 'data' | 'mixed' | 'unknown') | null;
      /** @default null */
      horizon: ('bursty' | 'long' | 'short') | null;
      /** @default false */
      spread: boolean;
    };
    /**
     * Constraints
     * @description Where a session may run; None is anywhere, and so are "" and "any" in a demand that was `checked`.
     *
     *     `model` matches any part of a device's model name. `server` "here" is the machine of its single-user server.
     */
    Constraints: {
      /** @default null */
      model: string | null;
      /** @default null */
      server: string | null;
    };
    /**
     * Next
     * @description What happens next by itself, or what the person can do. `in_s` null: no time can be named.
     */
    Next: {
      code: string;
      text: string;
      /** @default null */
      in_s: number | null;
    };
    /** Summary */
    Summary: {
      devices: number;
      free: number;
      waiting: number;
    };
    /**
     * Why
     * @description Why a session is where it is.
     */
    Why: {
      terms: components['schemas']['Term'][];
      alternatives: components['schemas']['Alternative'][];
      decided: Record<string, unknown>[];
    };
    /**
     * Term
     * @description One named part of a placement's fitness.
     */
    Term: {
      name: string;
      value: number;
      weight: number;
      text: string;
    };
    /**
     * Alternative
     * @description A device that lost, and the term that decided it.
     */
    Alternative: {
      device: string;
      fitness: number;
      decisive: string;
      text: string;
    };
    /**
     * Ask
     * @description A change of a demand: only the fields that are there. "restart" reserves what a running kernel cannot get.
     */
    Ask: {
      gpus?: number;
      gpus_max?: number | null;
      exclusive?: boolean;
      memory?: number | string | null;
      duration_s?: number | string | null;
      cpus?: number | null;
      host_memory?: number | string | null;
      constraints?: components['schemas']['Limits'];
      near?: string[];
      kind?: ('compute' | 'data' | 'mixed' | 'unknown') | null;
      horizon?: ('bursty' | 'long' | 'short') | null;
      spread?: boolean;
      /**
       * @default live
       * @enum {unknown}
       */
      apply: 'live' | 'restart';
    };
    /**
     * Limits
     * @description A change of the constraints: only those that are there. None, "" and "any" lift one.
     */
    Limits: {
      model?: string | null;
      server?: string | null;
    };
    /**
     * Acted
     * @description The state a session goes to.
     */
    Acted: {
      /** @enum {unknown} */
      state:
        | 'active'
        | 'bound'
        | 'dead'
        | 'idle'
        | 'lost'
        | 'none'
        | 'parked'
        | 'parking'
        | 'resuming'
        | 'waiting';
      /** @default  */
      message: string;
    };
    /** Pin */
    Pin: {
      /** @default 3600 */
      for_s: number | string;
    };
    /** MoveTo */
    MoveTo: {
      device: string;
    };
    /**
     * StopBody
     * @description `pid`: only this leftover process.
     */
    StopBody: {
      /** @default null */
      pid: number | null;
    };
    /**
     * PoolAsk
     * @description A pool of so many GPUs, all of them or none.
     */
    PoolAsk: {
      gpus: number;
      /** @default null */
      memory: number | string | null;
      /** @default null */
      model: string | null;
    };
    /**
     * PoolView
     * @description `state`: it waits for its devices, has them, processes run on them, or it ended (and `message` says why).
     */
    PoolView: {
      session: string;
      /** @enum {unknown} */
      state: 'ended' | 'ready' | 'running' | 'waiting';
      gpus: number;
      /** @default [] */
      members: components['schemas']['PoolMember'][];
      /** @default null */
      queue_position: number | null;
      /** @default null */
      eta_s: number | null;
      /** @default  */
      message: string;
      /** @default [] */
      lines: components['schemas']['PoolLine'][];
      /** @default 0 */
      next: number;
      /** @default {} */
      exits: {
        [key: string]: number;
      };
    };
    /** PoolMember */
    PoolMember: {
      server: string;
      here: boolean;
      devices: string[];
      first: number;
    };
    /** PoolLine */
    PoolLine: {
      rank: number;
      text: string;
    };
    /**
     * PoolStart
     * @description What runs on each of its devices: one process, which has that device alone in its mask.
     *
     *     `{address}`, `{notebook}` and `{rank}` in the command and the environment stand for the address of the process's
     *     machine, that of the notebook's as seen from there, and its rank. `again`: one that ends is started again.
     */
    PoolStart: {
      cmd: string[];
      /** @default {} */
      env: {
        [key: string]: string;
      };
      cwd: string;
      /** @default false */
      again: boolean;
    };
    /** Estimate */
    Estimate: {
      eta_s: number | null;
    };
    /**
     * History
     * @description Utilisation and share over time, and GPU-seconds by whom and when.
     */
    History: {
      since: number;
      until: number;
      step_s: number;
      series: components['schemas']['HistoryPoint'][];
      by_user: {
        [key: string]: number;
      };
      by_group: {
        [key: string]: number;
      };
      by_day: {
        [key: string]: number;
      };
      /** @default 0 */
      total_gpu_s: number;
      /** @default {} */
      fair: {
        [key: string]: number;
      };
      /** @default [] */
      figures: components['schemas']['Figure'][];
    };
    /**
     * HistoryPoint
     * @description One stretch of `History.step_s` seconds, over all devices that were held in it.
     */
    HistoryPoint: {
      at: number;
      share: number | null;
      utilization: number | null;
      gpu_s: number;
    };
    /**
     * Figure
     * @description The cluster in four figures, `ago_s` seconds ago.
     */
    Figure: {
      ago_s: number;
      waiting: number;
      computing: number;
      idle: number;
      out: number;
    };
    /**
     * Readings
     * @description Columns of one length, oldest first: a device's, or over several the mean of fractions, the highest temperature
     *     and the sum of all else, of what was read. None where nothing was.
     */
    Readings: {
      /** @default 5 */
      step_s: number;
      devices: number;
      ago_s: number[];
      utilization: (number | null)[];
      memory_used: (number | null)[];
      memory_utilization: (number | null)[];
      temperature_c: (number | null)[];
      power_w: (number | null)[];
      pcie_rx_gb_s: (number | null)[];
      pcie_tx_gb_s: (number | null)[];
      nvlink_rx_gb_s: (number | null)[];
      nvlink_tx_gb_s: (number | null)[];
    };
    /** Fault */
    Fault: {
      /** @enum {unknown} */
      fault: 'hot' | 'lost' | 'none' | 'slow' | 'unreadable';
    };
    /**
     * CommandResult
     * @description How a command ended. `reason` is a slug, `message` is for people.
     */
    CommandResult: {
      ok: boolean;
      /** @default null */
      reason: string | null;
      /** @default  */
      message: string;
      /** @default null */
      bytes: number | null;
      /** @default null */
      progress: number | null;
      /** @default null */
      again_s: number | null;
    };
  };
  responses: never;
  parameters: never;
  requestBodies: never;
  headers: never;
  pathItems: never;
};
export type $defs = Record<string, never>;
export interface operations {
  get_events: {
    parameters: {
      query?: never;
      header?: {
        'Last-Event-ID'?: number;
      };
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description A stream. */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'text/event-stream': unknown;
        };
      };
    };
  };
  get_status: {
    parameters: {
      query?: {
        /** @description Answers 204 while `rev` is still this one. */
        since?: number;
      };
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Status'];
        };
      };
    };
  };
  get_sessions_id: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['SessionView'];
        };
      };
    };
  };
  get_sessions_id_why: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Why'];
        };
      };
    };
  };
  post_sessions_id_request: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: {
      content: {
        'application/json': components['schemas']['Ask'];
      };
    };
    responses: {
      /** @description Accepted */
      202: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Acted'];
        };
      };
    };
  };
  post_sessions_id_release: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Accepted */
      202: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Acted'];
        };
      };
    };
  };
  post_sessions_id_park: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Accepted */
      202: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Acted'];
        };
      };
    };
  };
  post_sessions_id_resume: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Accepted */
      202: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Acted'];
        };
      };
    };
  };
  post_sessions_id_pin: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: {
      content: {
        'application/json': components['schemas']['Pin'];
      };
    };
    responses: {
      /** @description Accepted */
      202: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Acted'];
        };
      };
    };
  };
  post_sessions_id_unpin: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description Accepted */
      202: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Acted'];
        };
      };
    };
  };
  post_sessions_id_move: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: {
      content: {
        'application/json': components['schemas']['MoveTo'];
      };
    };
    responses: {
      /** @description Accepted */
      202: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Acted'];
        };
      };
    };
  };
  post_sessions_id_stop: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: {
      content: {
        'application/json': components['schemas']['StopBody'];
      };
    };
    responses: {
      /** @description Accepted */
      202: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Acted'];
        };
      };
    };
  };
  get_sessions_id_pool: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['PoolView'];
        };
      };
    };
  };
  post_sessions_id_pool: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: {
      content: {
        'application/json': components['schemas']['PoolAsk'];
      };
    };
    responses: {
      /** @description Accepted */
      202: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['PoolView'];
        };
      };
    };
  };
  post_sessions_id_pool_start: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: {
      content: {
        'application/json': components['schemas']['PoolStart'];
      };
    };
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['PoolView'];
        };
      };
    };
  };
  post_sessions_id_pool_end: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Kernel id. */
        id: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['PoolView'];
        };
      };
    };
  };
  put_demands_path: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description Path of a notebook under the server's root; it may hold slashes. */
        path: string;
      };
      cookie?: never;
    };
    requestBody?: {
      content: {
        'application/json': components['schemas']['Ask'];
      };
    };
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Demand'];
        };
      };
    };
  };
  get_doctor: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content?: never;
      };
    };
  };
  post_estimate: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: {
      content: {
        'application/json': components['schemas']['Ask'];
      };
    };
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Estimate'];
        };
      };
    };
  };
  get_history: {
    parameters: {
      query?: {
        /** @description Only this session. */
        session?: string;
        /** @description Only this user; another than oneself needs the admin scope. */
        user?: string;
        /** @description Begin, seconds since 1970; seven days before the end by default. */
        from?: number;
        /** @description End, seconds since 1970; now by default. */
        to?: number;
      };
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['History'];
        };
      };
    };
  };
  get_readings: {
    parameters: {
      query?: {
        /** @description Only this device, by its UUID. */
        device?: string;
        /** @description Only the devices of this server; by default those of all, taken together. */
        server?: string;
      };
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['Readings'];
        };
      };
    };
  };
  get_openapi_json: {
    parameters: {
      query?: never;
      header?: never;
      path?: never;
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content?: never;
      };
    };
  };
  get_devices_uuid: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description UUID of a GPU or a MIG instance. */
        uuid: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['DeviceView'];
        };
      };
    };
  };
  post_devices_uuid_drain: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description UUID of a GPU or a MIG instance. */
        uuid: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['DeviceView'];
        };
      };
    };
  };
  post_devices_uuid_undrain: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description UUID of a GPU or a MIG instance. */
        uuid: string;
      };
      cookie?: never;
    };
    requestBody?: never;
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['DeviceView'];
        };
      };
    };
  };
  post_devices_uuid_inject: {
    parameters: {
      query?: never;
      header?: never;
      path: {
        /** @description UUID of a GPU or a MIG instance. */
        uuid: string;
      };
      cookie?: never;
    };
    requestBody?: {
      content: {
        'application/json': components['schemas']['Fault'];
      };
    };
    responses: {
      /** @description OK */
      200: {
        headers: {
          [name: string]: unknown;
        };
        content: {
          'application/json': components['schemas']['CommandResult'];
        };
      };
    };
  };
}
