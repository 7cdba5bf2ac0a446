// SPDX-License-Identifier: Apache-2.0
// The environment variables by which the product's parts pass settings to the programs of a job and each
// other.
#pragma once

namespace sharedgpu::environment {

// The SPANK plugin or `sharedgpu run` sets these for the interposer. Users may set kSocket and kDebug.
inline constexpr char kSocket[] = "SHAREDGPU_SOCKET";                   // of the arbiter
inline constexpr char kArbiterTimeout[] = "SHAREDGPU_ARBITER_TIMEOUT";  // milliseconds
inline constexpr char kOnNoArbiter[] = "SHAREDGPU_ON_NO_ARBITER";       // plain or fail
inline constexpr char kGpus[] = "SHAREDGPU_GPUS";                       // the numbers of the job's GPUs
inline constexpr char kDebug[] = "SHAREDGPU_DEBUG";                     // 1

// Only `sharedgpu run` sets these: the token that identifies a process of the run to the arbiter, and the
// run's number.
inline constexpr char kToken[] = "SHAREDGPU_TOKEN";
inline constexpr char kRun[] = "SHAREDGPU_RUN";
// The value is 1 if a control group limits the run's host memory.
inline constexpr char kGroup[] = "SHAREDGPU_GROUP";

// The deadline pipe (deadline_pipe.h): the deadline in seconds, the write end, and "FD:INODE" of the read
// end.
inline constexpr char kDeadline[] = "SHAREDGPU_DEADLINE";
inline constexpr char kDeadlineFd[] = "SHAREDGPU_DEADLINE_FD";
inline constexpr char kDeadlineRead[] = "SHAREDGPU_DEADLINE_READ";

// The GRES plugin sets these: the step's units, the counts of their types ("a100:2,h100:1"), and the numbers
// of the device files of the GPUs for these units.
inline constexpr char kUnits[] = "SHAREDGPU_UNITS";
inline constexpr char kUnitTypes[] = "SHAREDGPU_UNIT_TYPES";
inline constexpr char kDevices[] = "SHAREDGPU_DEVICES";

// Slurm sets a variable for each option of the job. Its name is this prefix and the option's name without
// "--sharedgpu-".
inline constexpr char kInheritedOption[] = "SLURM_SPANK__SLURM_SPANK_OPTION_sharedgpu_sharedgpu_";

// The qsub of etc/slurm-torque sets this to the value that it has put into SBATCH_GRES.
inline constexpr char kQsubGres[] = "SHAREDGPU_QSUB_GRES";

}  // namespace sharedgpu::environment
