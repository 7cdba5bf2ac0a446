// SPDX-License-Identifier: Apache-2.0
// The precompiled headers of the test programs are built for programs that nobody runs. This file gives those
// programs their source; the library has their main().
