"""The CUDA driver by ctypes: memory, and three small kernels in PTX. No toolkit and no framework is needed."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

BLOCKS, THREADS = 1056, 256  # enough to fill every GPU there is
PTX = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry spin(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %p<2>;
    .reg .u32 %r<7>;
    .reg .u64 %rd<4>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r6, [rounds];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.rn.f32.u32 %f1, %r4;
AGAIN:
    fma.rn.f32 %f1, %f1, 0f3F7FFFFF, 0f3F800000;
    sub.u32 %r6, %r6, 1;
    setp.ne.u32 %p1, %r6, 0;
    @%p1 bra AGAIN;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.f32 [%rd3], %f1;
    ret;
}

.visible .entry pattern(.param .u64 at, .param .u64 words, .param .u32 seed)
{
    .reg .pred %p<2>;
    .reg .u32 %r<8>;
    .reg .u64 %rd<9>;
    ld.param.u64 %rd1, [at];
    ld.param.u64 %rd2, [words];
    ld.param.u32 %r7, [seed];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %nctaid.x;
    mul.wide.u32 %rd3, %r1, %r2;
    cvt.u64.u32 %rd4, %r3;
    add.u64 %rd3, %rd3, %rd4;
    mul.wide.u32 %rd5, %r4, %r2;
AGAIN:
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra DONE;
    cvt.u32.u64 %r5, %rd3;
    mul.lo.u32 %r5, %r5, 0x9E3779B1;
    xor.b32 %r5, %r5, %r7;
    shl.b64 %rd6, %rd3, 2;
    add.u64 %rd7, %rd1, %rd6;
    st.global.u32 [%rd7], %r5;
    add.u64 %rd3, %rd3, %rd5;
    bra AGAIN;
DONE:
    ret;
}

.visible .entry compare(.param .u64 at, .param .u64 words, .param .u32 seed, .param .u64 bad)
{
    .reg .pred %p<3>;
    .reg .u32 %r<9>;
    .reg .u64 %rd<10>;
    ld.param.u64 %rd1, [at];
    ld.param.u64 %rd2, [words];
    ld.param.u32 %r7, [seed];
    ld.param.u64 %rd8, [bad];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %nctaid.x;
    mul.wide.u32 %rd3, %r1, %r2;
    cvt.u64.u32 %rd4, %r3;
    add.u64 %rd3, %rd3, %rd4;
    mul.wide.u32 %rd5, %r4, %r2;
AGAIN:
    setp.ge.u64 %p1, %rd3, %rd2;
    @%p1 bra DONE;
    cvt.u32.u64 %r5, %rd3;
    mul.lo.u32 %r5, %r5, 0x9E3779B1;
    xor.b32 %r5, %r5, %r7;
    shl.b64 %rd6, %rd3, 2;
    add.u64 %rd7, %rd1, %rd6;
    ld.global.u32 %r6, [%rd7];
    setp.ne.u32 %p2, %r5, %r6;
    @%p2 red.global.add.u32 [%rd8], 1;
    add.u64 %rd3, %rd3, %rd5;
    bra AGAIN;
DONE:
    ret;
}
"""
OUT_OF_MEMORY = 2


class CudaError(Exception):
    """A driver call failed; `code` is its CUresult."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} answered {code}")
        self.code = code


class Cuda:
    """Device 0 of what is visible, its primary context, and the three kernels. One thread."""

    def __init__(self) -> None:
        """Raises OSError without a driver, CudaError without a device."""
        self._library = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", c_uint32(0))
        self._device = c_int()
        self._call("cuDeviceGet", byref(self._device), c_int(0))
        context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        module = c_void_p()
        self._call("cuModuleLoadData", byref(module), c_char_p(PTX))
        self._kernels = {}
        for name in (b"spin", b"pattern", b"compare"):
            self._kernels[name] = c_void_p()
            self._call("cuModuleGetFunction", byref(self._kernels[name]), module, c_char_p(name))
        self._scratch = self.allocate(4 * BLOCKS * THREADS)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaError(name, code)

    def allocate(self, size: int, managed: bool = False) -> int:
        """The address of that many bytes. Raises CudaError."""
        at = c_uint64()
        if managed:
            self._call("cuMemAllocManaged", byref(at), c_size_t(size), c_uint32(1))  # CU_MEM_ATTACH_GLOBAL
        else:
            self._call("cuMemAlloc_v2", byref(at), c_size_t(size))
        return at.value

    def release(self, at: int) -> None:
        self._call("cuMemFree_v2", c_uint64(at))

    def room(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def fill(self, at: int, size: int, seed: int) -> None:
        """Every word gets a value of its own."""
        self._launch(b"pattern", c_uint64(at), c_uint64(size // 4), c_uint32(seed))
        self.wait()

    def differing(self, at: int, size: int, seed: int) -> int:
        """Words that do not have the value that `fill` gave them."""
        self._call("cuMemsetD32_v2", c_uint64(self._scratch), c_uint32(0), c_size_t(1))
        self._launch(b"compare", c_uint64(at), c_uint64(size // 4), c_uint32(seed), c_uint64(self._scratch))
        self.wait()
        bad = c_uint32()
        self._call("cuMemcpyDtoH_v2", byref(bad), c_uint64(self._scratch), c_size_t(4))
        return bad.value

    def spin(self, rounds: int) -> None:
        """Keeps all of the device busy for a time that is proportional to `rounds`."""
        self._launch(b"spin", c_uint64(self._scratch), c_uint32(rounds))
        self.wait()

    def wait(self) -> None:
        self._call("cuCtxSynchronize")

    def _launch(self, name: bytes, *arguments: ctypes._SimpleCData) -> None:
        pointers = (c_void_p * len(arguments))(*(ctypes.cast(byref(value), c_void_p) for value in arguments))
        size = (c_uint32(BLOCKS), c_uint32(1), c_uint32(1), c_uint32(THREADS), c_uint32(1), c_uint32(1))
        self._call("cuLaunchKernel", self._kernels[name], *size, c_uint32(0), None, pointers, None)
