// SPDX-License-Identifier: Apache-2.0
// Launches of graphs in an oversized process. A graph is launched node by node only in two cases: the
// operands that its kernels need do not fit the window together, or it has a single kernel.
// should_run_singly() has the further conditions. Handles can then be exchanged between two kernels, and each
// kernel can be timed. Any other graph is launched whole, after an exchange that Residence::choose() has
// chosen. Thread-safe.
#pragma once

#include <cuda.h>

#include <functional>

namespace sharedgpu::hooks {

// Carries out a call of cuGraphLaunch by the program. `own` is true if stream 0 means the per-thread default
// stream. `whole` passes the gate, and calls the driver's cuGraphLaunch.
CUresult launch_graph(CUgraphExec graph, CUstream stream, bool own, const std::function<CUresult()>& whole);

// Call it if the program has instantiated a graph that kernels can launch. From then on, no graph is launched
// node by node: a kernel can launch a graph only if the kernel itself runs as a part of a graph.
void kernels_launch_graphs();

}  // namespace sharedgpu::hooks
