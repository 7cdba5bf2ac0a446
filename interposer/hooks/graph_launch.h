// SPDX-License-Identifier: Apache-2.0
// Launches of graphs in an oversized process. A graph whose operands do not fit the window together, or that
// has a single kernel, is launched node by node, so that operands change places between kernels and kernels
// are timed. Any other graph is launched whole, after its operands have come in. Thread-safe.
#pragma once

#include <cuda.h>

#include <functional>

namespace sharedgpu::hooks {

class OversizedLaunch;

// Passes the gate, and launches a graph by the driver. Inside the gate, calls end() of the argument, unless
// it is null.
using WholeLaunch = std::function<CUresult(OversizedLaunch*)>;

// Makes the program's call cuGraphLaunch. `own`: stream 0 means the per-thread default stream.
CUresult launch_graph(CUgraphExec graph, CUstream stream, bool own, const WholeLaunch& whole);

// Call it if a graph has been instantiated that kernels can launch. No graph is launched node by node from
// then on: a kernel can launch a graph only as a part of a graph.
void kernels_launch_graphs();

}  // namespace sharedgpu::hooks
