// SPDX-License-Identifier: Apache-2.0
// Programs that nobody runs own the precompiled headers of the test programs. Their main() is the library's.
