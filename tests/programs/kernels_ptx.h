// SPDX-License-Identifier: Apache-2.0
// The test kernels as PTX. pattern.h defines what the kernels compute; the simulated GPU finds them by name.
#pragma once

namespace sharedgpu::programs {

inline constexpr char kKernelsPtx[] = R"ptx(.version 6.4
.target sm_70
.address_size 64

// One thread a word, in a grid-stride loop.
.visible .entry pattern_fill(.param .u64 pattern_fill_data, .param .u64 pattern_fill_count, .param .u64 pattern_fill_seed, .param .u64 pattern_fill_first)
{
  .reg .pred %p<3>;
  .reg .u32 %r<8>;
  .reg .u64 %i, %n, %stride, %data, %at, %thread, %bid, %dim, %grid;
  .reg .u64 %seed, %first, %z, %t;
  ld.param.u64 %data, [pattern_fill_data];
  ld.param.u64 %n, [pattern_fill_count];
  ld.param.u64 %seed, [pattern_fill_seed];
  ld.param.u64 %first, [pattern_fill_first];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %nctaid.x;
  mul.wide.u32 %i, %r1, %r2;
  cvt.u64.u32 %thread, %r0;
  add.u64 %i, %i, %thread;
  mul.wide.u32 %stride, %r2, %r3;
LOOP:
  setp.ge.u64 %p0, %i, %n;
  @%p0 bra DONE;
  mad.lo.u64 %at, %i, 8, %data;
  add.u64 %z, %i, %first;
  mad.lo.u64 %z, %z, 0x9e3779b97f4a7c15, %seed;
  shr.u64 %t, %z, 30;
  xor.b64 %z, %z, %t;
  mul.lo.u64 %z, %z, 0xbf58476d1ce4e5b9;
  shr.u64 %t, %z, 27;
  xor.b64 %z, %z, %t;
  mul.lo.u64 %z, %z, 0x94d049bb133111eb;
  shr.u64 %t, %z, 31;
  xor.b64 %z, %z, %t;
  st.global.u64 [%at], %z;
  add.u64 %i, %i, %stride;
  bra LOOP;
DONE:
  ret;
}

// One thread a word, in a grid-stride loop.
.visible .entry pattern_step(.param .u64 pattern_step_data, .param .u64 pattern_step_count, .param .u64 pattern_step_iteration)
{
  .reg .pred %p<3>;
  .reg .u32 %r<8>;
  .reg .u64 %i, %n, %stride, %data, %at, %thread, %bid, %dim, %grid;
  .reg .u64 %c, %x;
  ld.param.u64 %data, [pattern_step_data];
  ld.param.u64 %n, [pattern_step_count];
  ld.param.u64 %c, [pattern_step_iteration];
  shl.b64 %c, %c, 1;
  add.u64 %c, %c, 1;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %nctaid.x;
  mul.wide.u32 %i, %r1, %r2;
  cvt.u64.u32 %thread, %r0;
  add.u64 %i, %i, %thread;
  mul.wide.u32 %stride, %r2, %r3;
LOOP:
  setp.ge.u64 %p0, %i, %n;
  @%p0 bra DONE;
  mad.lo.u64 %at, %i, 8, %data;
  ld.global.u64 %x, [%at];
  mad.lo.u64 %x, %x, 6364136223846793005, %c;
  st.global.u64 [%at], %x;
  add.u64 %i, %i, %stride;
  bra LOOP;
DONE:
  ret;
}

// One thread a word, in a grid-stride loop.
.visible .entry pattern_checksum(.param .u64 pattern_checksum_data, .param .u64 pattern_checksum_count, .param .u64 pattern_checksum_sum, .param .u64 pattern_checksum_first)
{
  .reg .pred %p<3>;
  .reg .u32 %r<8>;
  .reg .u64 %i, %n, %stride, %data, %at, %thread, %bid, %dim, %grid;
  .reg .u64 %sum, %first, %x, %w, %total;
  ld.param.u64 %data, [pattern_checksum_data];
  ld.param.u64 %n, [pattern_checksum_count];
  ld.param.u64 %sum, [pattern_checksum_sum];
  ld.param.u64 %first, [pattern_checksum_first];
  mov.u64 %total, 0;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %nctaid.x;
  mul.wide.u32 %i, %r1, %r2;
  cvt.u64.u32 %thread, %r0;
  add.u64 %i, %i, %thread;
  mul.wide.u32 %stride, %r2, %r3;
LOOP:
  setp.ge.u64 %p0, %i, %n;
  @%p0 bra DONE;
  mad.lo.u64 %at, %i, 8, %data;
  ld.global.u64 %x, [%at];
  add.u64 %w, %i, %first;
  shl.b64 %w, %w, 1;
  add.u64 %w, %w, 1;
  mad.lo.u64 %total, %x, %w, %total;
  add.u64 %i, %i, %stride;
  bra LOOP;
DONE:
  red.global.add.u64 [%sum], %total;
  ret;
}

// One thread a word, in a grid-stride loop.
.visible .entry add_value(.param .u64 add_value_data, .param .u64 add_value_count, .param .u32 add_value_value)
{
  .reg .pred %p<3>;
  .reg .u32 %r<8>;
  .reg .u64 %i, %n, %stride, %data, %at, %thread, %bid, %dim, %grid;
  .reg .u32 %v, %x;
  ld.param.u64 %data, [add_value_data];
  ld.param.u64 %n, [add_value_count];
  ld.param.u32 %v, [add_value_value];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %nctaid.x;
  mul.wide.u32 %i, %r1, %r2;
  cvt.u64.u32 %thread, %r0;
  add.u64 %i, %i, %thread;
  mul.wide.u32 %stride, %r2, %r3;
LOOP:
  setp.ge.u64 %p0, %i, %n;
  @%p0 bra DONE;
  mad.lo.u64 %at, %i, 4, %data;
  ld.global.u32 %x, [%at];
  add.u32 %x, %x, %v;
  st.global.u32 [%at], %x;
  add.u64 %i, %i, %stride;
  bra LOOP;
DONE:
  ret;
}

// One thread a word, in a grid-stride loop.
.visible .entry gather_sum(.param .u64 gather_sum_data, .param .u64 gather_sum_count, .param .u64 gather_sum_words, .param .u64 gather_sum_sum)
{
  .reg .pred %p<3>;
  .reg .u32 %r<8>;
  .reg .u64 %i, %n, %stride, %data, %at, %thread, %bid, %dim, %grid;
  .reg .u64 %words, %sum, %x, %total, %block, %end;
  ld.param.u64 %data, [gather_sum_data];
  ld.param.u64 %n, [gather_sum_count];
  ld.param.u64 %words, [gather_sum_words];
  ld.param.u64 %sum, [gather_sum_sum];
  mov.u64 %total, 0;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %nctaid.x;
  mul.wide.u32 %i, %r1, %r2;
  cvt.u64.u32 %thread, %r0;
  add.u64 %i, %i, %thread;
  mul.wide.u32 %stride, %r2, %r3;
LOOP:
  setp.ge.u64 %p0, %i, %n;
  @%p0 bra DONE;
  mad.lo.u64 %at, %i, 8, %data;
  ld.global.u64 %block, [%at];
  mad.lo.u64 %end, %words, 8, %block;
INNER:
  setp.ge.u64 %p1, %block, %end;
  @%p1 bra NEXT;
  ld.global.u64 %x, [%block];
  add.u64 %total, %total, %x;
  add.u64 %block, %block, 8;
  bra INNER;
NEXT:
  add.u64 %i, %i, %stride;
  bra LOOP;
DONE:
  red.global.add.u64 [%sum], %total;
  ret;
}

.visible .entry store_word(.param .u64 store_word_data, .param .u64 store_word_value)
{
  .reg .u64 %data, %value;
  ld.param.u64 %data, [store_word_data];
  ld.param.u64 %value, [store_word_value];
  st.global.u64 [%data], %value;
  ret;
}

// A step of all words of the blocks to which a table of pointers leads. One thread a word, in a grid-stride loop.
.visible .entry pattern_hidden(.param .u64 pattern_hidden_table, .param .u64 pattern_hidden_count, .param .u64 pattern_hidden_words, .param .u64 pattern_hidden_iteration)
{
  .reg .pred %p<3>;
  .reg .u32 %r<8>;
  .reg .u64 %i, %n, %stride, %data, %at, %thread;
  .reg .u64 %words, %c, %x, %block, %j;
  ld.param.u64 %data, [pattern_hidden_table];
  ld.param.u64 %n, [pattern_hidden_count];
  ld.param.u64 %words, [pattern_hidden_words];
  ld.param.u64 %c, [pattern_hidden_iteration];
  shl.b64 %c, %c, 1;
  add.u64 %c, %c, 1;
  mul.lo.u64 %n, %n, %words;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %nctaid.x;
  mul.wide.u32 %i, %r1, %r2;
  cvt.u64.u32 %thread, %r0;
  add.u64 %i, %i, %thread;
  mul.wide.u32 %stride, %r2, %r3;
LOOP:
  setp.ge.u64 %p0, %i, %n;
  @%p0 bra DONE;
  div.u64 %block, %i, %words;
  mul.lo.u64 %j, %block, %words;
  sub.u64 %j, %i, %j;
  mad.lo.u64 %at, %block, 8, %data;
  ld.global.u64 %block, [%at];
  mad.lo.u64 %at, %j, 8, %block;
  ld.global.u64 %x, [%at];
  mad.lo.u64 %x, %x, 6364136223846793005, %c;
  st.global.u64 [%at], %x;
  add.u64 %i, %i, %stride;
  bra LOOP;
DONE:
  ret;
}

// Each block adds up the whole operand, and then changes its part of the words.
.visible .entry pattern_product(.param .u64 pattern_product_data, .param .u64 pattern_product_count, .param .u64 pattern_product_operand, .param .u64 pattern_product_operand_count, .param .u64 pattern_product_iteration)
{
  .reg .pred %p<3>;
  .reg .u32 %r<8>;
  .reg .u64 %i, %n, %stride, %data, %at, %thread, %dim;
  .reg .u64 %operand, %m, %c, %x, %total;
  .shared .align 8 .u64 pattern_product_total;
  ld.param.u64 %data, [pattern_product_data];
  ld.param.u64 %n, [pattern_product_count];
  ld.param.u64 %operand, [pattern_product_operand];
  ld.param.u64 %m, [pattern_product_operand_count];
  ld.param.u64 %c, [pattern_product_iteration];
  shl.b64 %c, %c, 1;
  add.u64 %c, %c, 1;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %nctaid.x;
  cvt.u64.u32 %thread, %r0;
  cvt.u64.u32 %dim, %r2;
  mov.u64 %total, 0;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra CLEARED;
  st.shared.u64 [pattern_product_total], %total;
CLEARED:
  bar.sync 0;
  mov.u64 %i, %thread;
ADD:
  setp.ge.u64 %p0, %i, %m;
  @%p0 bra ADDED;
  mad.lo.u64 %at, %i, 8, %operand;
  ld.global.u64 %x, [%at];
  add.u64 %total, %total, %x;
  add.u64 %i, %i, %dim;
  bra ADD;
ADDED:
  red.shared.add.u64 [pattern_product_total], %total;
  bar.sync 0;
  ld.shared.u64 %total, [pattern_product_total];
  add.u64 %c, %c, %total;
  mul.wide.u32 %i, %r1, %r2;
  add.u64 %i, %i, %thread;
  mul.wide.u32 %stride, %r2, %r3;
LOOP:
  setp.ge.u64 %p0, %i, %n;
  @%p0 bra DONE;
  mad.lo.u64 %at, %i, 8, %data;
  ld.global.u64 %x, [%at];
  mad.lo.u64 %x, %x, 6364136223846793005, %c;
  st.global.u64 [%at], %x;
  add.u64 %i, %i, %stride;
  bra LOOP;
DONE:
  ret;
}

// Keeps the GPU busy for a number of nanoseconds.
.visible .entry spin(.param .u64 spin_nanoseconds)
{
  .reg .pred %p;
  .reg .u64 %wanted, %start, %now;
  ld.param.u64 %wanted, [spin_nanoseconds];
  mov.u64 %start, %globaltimer;
AGAIN:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %p, %now, %wanted;
  @%p bra AGAIN;
  ret;
}

.visible .entry empty()
{
  ret;
}

.visible .entry trap()
{
  trap;
}
)ptx";

}  // namespace sharedgpu::programs
