// SPDX-License-Identifier: Apache-2.0
// The PTX of the kernel that computes fingerprints (fingerprint.h). Every driver with virtual memory
// management can compile it, for every GPU from Maxwell on.
//
// One thread block computes one part. Each thread reads its block of a tile with eight loads of 16 bytes,
// which run at the same time. The key of NH is a parameter of the kernel. So only memory bandwidth limits the
// speed. For each part of 128 KiB, the kernel writes 32 bytes of results to host memory.
#pragma once

namespace sharedgpu::fingerprint {

inline constexpr char kKernelName[] = "sharedgpu_fingerprint";

// Registers %k0 to %k37 hold the words of NH's key, %x0 to %x31 the words of a thread's eight vectors.
#define KEY(i, at) " ld.param.u32 %k" #i ", [sharedgpu_fingerprint_key+" #at "];\n"
#define LOAD(a, b, c, d, at) " ld.global.cs.v4.u32 {%x" #a ", %x" #b ", %x" #c ", %x" #d "}, [%at+" #at "];\n"

// Computes one of the four passes of NH for a pair of words.
#define PASS(sum, x, y, k, l)    \
  " add.u32 %p, %x" #x ", %k" #k \
  ";\n"                          \
  " add.u32 %q, %x" #y ", %k" #l \
  ";\n"                          \
  " mad.wide.u32 %v" #sum ", %p, %q, %v" #sum ";\n"
#define DIFFERS(x) " xor.b32 %p, %x" #x ", %first;\n or.b32 %differs, %differs, %p;\n"
#define PAIR(x, y, a, b, c, d, e, f, g, h) \
  PASS(0, x, y, a, b) PASS(1, x, y, c, d) PASS(2, x, y, e, f) PASS(3, x, y, g, h) DIFFERS(x) DIFFERS(y)

// Multiplies one value of the block by its tile's key, and adds the product to the 128-bit sum of one half of
// the hash.
#define ADD_BLOCK(low, high, value, at)         \
  " ld.param.u64 %c, [%tile_key+" #at           \
  "];\n"                                        \
  " mad.lo.cc.u64 " low ", " value ", %c, " low \
  ";\n"                                         \
  " madc.hi.u64 " high ", " value ", %c, " high ";\n"
// FOLD and REDUCE reduce a number modulo p. The result is below 2^62. FOLD takes a number below 2^63, REDUCE
// takes a number of 128 bits.
#define FOLD(x) " and.b64 %u, " x ", 0x1fffffffffffffff;\n shr.u64 %w, " x ", 61;\n add.u64 " x ", %u, %w;\n"
#define REDUCE(x, low, high)                                                             \
  " shr.u64 %u, " low ", 61;\n shl.b64 %w, " high                                        \
  ", 3;\n or.b64 %u, %u, %w;\n"                                                          \
  " and.b64 %u, %u, 0x1fffffffffffffff;\n and.b64 %w, " low                              \
  ", 0x1fffffffffffffff;\n add.u64 %u, %u, %w;\n shr.u64 %w, " high ", 58;\n add.u64 " x \
  ", %u, %w;\n" FOLD(x)
#define TIMES(x, key)                                                                 \
  " ld.param.u64 %c, [" key "];\n mul.lo.u64 %low, " x ", %c;\n mul.hi.u64 %high, " x \
  ", %c;\n" REDUCE(x, "%low", "%high")
// ADD_WARP sums `x` over the lanes of a warp, and the first lane gets the sum. ADD_LANES is one step of this.
#define ADD_LANES(x, distance)                                        \
  " mov.b64 {%p, %q}, " x ";\n shfl.sync.down.b32 %p, %p, " #distance \
  ", 31, 0xffffffff;\n"                                               \
  " shfl.sync.down.b32 %q, %q, " #distance                            \
  ", 31, 0xffffffff;\n mov.b64 %c, {%p, %q};\n"                       \
  " add.u64 " x ", " x ", %c;\n" FOLD(x)
#define ADD_WARP(x) ADD_LANES(x, 16) ADD_LANES(x, 8) ADD_LANES(x, 4) ADD_LANES(x, 2) ADD_LANES(x, 1)
// TAKE and TAKE_OTHER add a sum of another warp: TAKE adds the sum of the first half of the hash, TAKE_OTHER
// adds the sum of the second half.
#define TAKE(at) " ld.shared.u64 %c, [sums+" #at "];\n add.u64 %s0, %s0, %c;\n" FOLD("%s0")
#define TAKE_OTHER(at) " ld.shared.u64 %c, [sums+" #at "];\n add.u64 %s1, %s1, %c;\n" FOLD("%s1")

inline constexpr char kKernelPtx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    ".visible .entry sharedgpu_fingerprint(\n"
    " .param .u64 sharedgpu_fingerprint_data,\n"   // the address of the range, which consists of whole parts
    " .param .u64 sharedgpu_fingerprint_count,\n"  // number of parts
    " .param .u64 sharedgpu_fingerprint_parts,\n"  // the address of the results: a struct Part for each part
                                                   // of the range
    " .param .u64 sharedgpu_fingerprint_stamp,\n"
    " .param .align 8 .b8 sharedgpu_fingerprint_key[928])\n"  // struct KernelKey
    ".maxntid 256, 1, 1\n"
    "{\n"
    " .reg .pred %more, %any, %is_first;\n"
    " .reg .u32 %k<38>, %x<32>, %p, %q, %thread, %part, %lane, %warp, %tile, %first, %differs;\n"
    " .reg .u64 %v<4>, %data, %at, %key, %tile_key, %c, %u, %w, %low, %high, %s0, %s1, %to, %stamp;\n"
    " .reg .u64 %a0, %a1, %b0, %b1;\n"
    " .shared .align 8 .b8 sums[128];\n"
    // clang-format off
    KEY(0, 0) KEY(1, 4) KEY(2, 8) KEY(3, 12) KEY(4, 16) KEY(5, 20) KEY(6, 24)
    KEY(7, 28) KEY(8, 32) KEY(9, 36) KEY(10, 40) KEY(11, 44) KEY(12, 48) KEY(13, 52)
    KEY(14, 56) KEY(15, 60) KEY(16, 64) KEY(17, 68) KEY(18, 72) KEY(19, 76) KEY(20, 80)
    KEY(21, 84) KEY(22, 88) KEY(23, 92) KEY(24, 96) KEY(25, 100) KEY(26, 104)
    KEY(27, 108) KEY(28, 112) KEY(29, 116) KEY(30, 120) KEY(31, 124) KEY(32, 128)
    KEY(33, 132) KEY(34, 136) KEY(35, 140) KEY(36, 144) KEY(37, 148)
    // clang-format on
    " ld.param.u64 %data, [sharedgpu_fingerprint_data];\n"
    " ld.global.u32 %first, [%data];\n"
    " mov.u32 %thread, %tid.x;\n"
    " mov.u32 %part, %ctaid.x;\n"
    " ld.param.u64 %u, [sharedgpu_fingerprint_count];\n"
    " cvt.u64.u32 %w, %part;\n"
    " setp.ge.u64 %more, %w, %u;\n"
    " @%more ret;\n"
    " mad.wide.u32 %at, %part, 131072, %data;\n"
    " mad.wide.u32 %at, %thread, 16, %at;\n"
    " mov.u64 %key, sharedgpu_fingerprint_key;\n"
    " add.u64 %tile_key, %key, 160;\n"
    " mov.u64 %a0, 0;\n mov.u64 %a1, 0;\n mov.u64 %b0, 0;\n mov.u64 %b1, 0;\n"
    " mov.u32 %tile, 0;\n mov.u32 %differs, 0;\n"
    "NEXT_TILE:\n"
    // clang-format off
    LOAD(0, 1, 2, 3, 0) LOAD(4, 5, 6, 7, 4096) LOAD(8, 9, 10, 11, 8192) LOAD(12, 13, 14, 15, 12288)
    LOAD(16, 17, 18, 19, 16384) LOAD(20, 21, 22, 23, 20480) LOAD(24, 25, 26, 27, 24576)
    LOAD(28, 29, 30, 31, 28672)
    " mov.u64 %v0, 0;\n mov.u64 %v1, 0;\n mov.u64 %v2, 0;\n mov.u64 %v3, 0;\n"
    PAIR(0, 1, 0, 1, 2, 3, 4, 5, 6, 7)
    PAIR(2, 3, 2, 3, 4, 5, 6, 7, 8, 9)
    PAIR(4, 5, 4, 5, 6, 7, 8, 9, 10, 11)
    PAIR(6, 7, 6, 7, 8, 9, 10, 11, 12, 13)
    PAIR(8, 9, 8, 9, 10, 11, 12, 13, 14, 15)
    PAIR(10, 11, 10, 11, 12, 13, 14, 15, 16, 17)
    PAIR(12, 13, 12, 13, 14, 15, 16, 17, 18, 19)
    PAIR(14, 15, 14, 15, 16, 17, 18, 19, 20, 21)
    PAIR(16, 17, 16, 17, 18, 19, 20, 21, 22, 23)
    PAIR(18, 19, 18, 19, 20, 21, 22, 23, 24, 25)
    PAIR(20, 21, 20, 21, 22, 23, 24, 25, 26, 27)
    PAIR(22, 23, 22, 23, 24, 25, 26, 27, 28, 29)
    PAIR(24, 25, 24, 25, 26, 27, 28, 29, 30, 31)
    PAIR(26, 27, 26, 27, 28, 29, 30, 31, 32, 33)
    PAIR(28, 29, 28, 29, 30, 31, 32, 33, 34, 35)
    PAIR(30, 31, 30, 31, 32, 33, 34, 35, 36, 37)
    ADD_BLOCK("%a0", "%a1", "%v0", 0) ADD_BLOCK("%a0", "%a1", "%v1", 8)
    ADD_BLOCK("%b0", "%b1", "%v2", 16) ADD_BLOCK("%b0", "%b1", "%v3", 24)
    // clang-format on
    " add.u64 %at, %at, 32768;\n"
    " add.u64 %tile_key, %tile_key, 32;\n"
    " add.u32 %tile, %tile, 1;\n"
    " setp.lt.u32 %more, %tile, 4;\n"
    " @%more bra NEXT_TILE;\n"

    " and.b32 %lane, %thread, 31;\n"
    " shr.u32 %warp, %thread, 5;\n"
    " mad.wide.u32 %to, %lane, 16, %key;\n"  // address of the lane's key, minus 288
    REDUCE("%s0", "%a0", "%a1") TIMES("%s0", "%to+288") ADD_WARP("%s0")
    REDUCE("%s1", "%b0", "%b1") TIMES("%s1", "%to+296") ADD_WARP("%s1")
    " mad.wide.u32 %to, %warp, 16, %key;\n"
    TIMES("%s0", "%to+800") TIMES("%s1", "%to+808")
    " setp.eq.u32 %is_first, %lane, 0;\n"
    " mov.u64 %to, sums;\n"
    " mad.wide.u32 %to, %warp, 16, %to;\n"
    " @%is_first st.shared.u64 [%to], %s0;\n"
    " @%is_first st.shared.u64 [%to+8], %s1;\n"
    " setp.ne.u32 %any, %differs, 0;\n"
    " bar.red.or.pred %any, 0, %any;\n"
    " selp.u32 %differs, 1, 0, %any;\n"
    " setp.ne.u32 %more, %thread, 0;\n"
    " @%more ret;\n"
    TAKE(16) TAKE(32) TAKE(48) TAKE(64) TAKE(80) TAKE(96) TAKE(112)
    TAKE_OTHER(24) TAKE_OTHER(40) TAKE_OTHER(56) TAKE_OTHER(72) TAKE_OTHER(88) TAKE_OTHER(104)
    TAKE_OTHER(120)
    " ld.param.u64 %to, [sharedgpu_fingerprint_parts];\n"
    " ld.param.u64 %stamp, [sharedgpu_fingerprint_stamp];\n"
    " mad.wide.u32 %to, %part, 32, %to;\n"
    " st.global.v2.u64 [%to], {%s0, %s1};\n"
    " st.global.v2.u32 [%to+16], {%first, %differs};\n"
    " st.global.u64 [%to+24], %stamp;\n"
    " ret;\n"
    "}\n";

#undef KEY
#undef LOAD
#undef PASS
#undef DIFFERS
#undef PAIR
#undef ADD_BLOCK
#undef FOLD
#undef REDUCE
#undef TIMES
#undef ADD_LANES
#undef ADD_WARP
#undef TAKE
#undef TAKE_OTHER

}  // namespace sharedgpu::fingerprint
