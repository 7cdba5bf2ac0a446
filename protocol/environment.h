// SPDX-License-Identifier: Apache-2.0
// The environment variables by which the parts of sharedgpu pass settings to each other and to the programs
// of a job.
#pragma once

namespace sharedgpu::environment {

// The SPANK plugin or `sharedgpu run` sets the next four variables for the interposer. Users may set kSocket.
// Only users set kDebug.
inline constexpr char kSocket[] = "SHAREDGPU_SOCKET";                   // path of the arbiter's socket
inline constexpr char kArbiterTimeout[] = "SHAREDGPU_ARBITER_TIMEOUT";  // in milliseconds
inline constexpr char kOnNoArbiter[] = "SHAREDGPU_ON_NO_ARBITER";       // plain or fail
// The job's GPUs, as in CUDA_VISIBLE_DEVICES: the UUIDs of the GPUs that the arbiter has chosen. If it has
// chosen none, the numbers of GPUs, or "none".
inline constexpr char kGpus[] = "SHAREDGPU_GPUS";
inline constexpr char kDebug[] = "SHAREDGPU_DEBUG";  // 1: the interposer writes a log of its actions to
                                                     // stderr

// Only `sharedgpu run` sets the next two variables. By the token, a process proves to the arbiter that it
// belongs to the run. kRun is the run's number.
inline constexpr char kToken[] = "SHAREDGPU_TOKEN";
inline constexpr char kRun[] = "SHAREDGPU_RUN";
// `sharedgpu run` sets this to 1 if a control group limits the run's host memory.
inline constexpr char kGroup[] = "SHAREDGPU_GROUP";

// The next three variables describe the deadline pipe (deadline_pipe.h): the deadline in seconds, the
// descriptor of the write end, and "FD:INODE" (descriptor and inode number) of the read end.
inline constexpr char kDeadline[] = "SHAREDGPU_DEADLINE";
inline constexpr char kDeadlineFd[] = "SHAREDGPU_DEADLINE_FD";
inline constexpr char kDeadlineRead[] = "SHAREDGPU_DEADLINE_READ";

// The GRES plugin sets the next three variables: the number of the step's units of gres/sharedgpu, the counts
// by type ("a100:2,h100:1"), and the minor numbers of the device files of the GPUs to which these units
// belong.
inline constexpr char kUnits[] = "SHAREDGPU_UNITS";
inline constexpr char kUnitTypes[] = "SHAREDGPU_UNIT_TYPES";
inline constexpr char kDevices[] = "SHAREDGPU_DEVICES";

// Slurm sets a variable for each --sharedgpu- option of the job. The name of the variable is this prefix,
// followed by the option's name without "--sharedgpu-".
inline constexpr char kInheritedOption[] = "SLURM_SPANK__SLURM_SPANK_OPTION_sharedgpu_sharedgpu_";

// srun sets this to 1 for its step if the same srun has created the job. slurmstepd removes the variable.
inline constexpr char kJobOfSrun[] = "SHAREDGPU_JOB_OF_SRUN";

// The qsub of etc/slurm-torque sets this to the value that it has put into SBATCH_GRES.
inline constexpr char kQsubGres[] = "SHAREDGPU_QSUB_GRES";

// The job's variables that a container of the job needs. The variables of the batch system tell the
// interposer which batch system it is. The interposer's message about a refused allocation then names the
// right option. The variables of the deadline pipe are not in this list, since programs in a container do not
// inherit the pipe's descriptors.
inline constexpr const char* kContainerVariables[] = {kSocket,
                                                      kArbiterTimeout,
                                                      kOnNoArbiter,
                                                      kGpus,
                                                      kToken,
                                                      kRun,
                                                      kGroup,
                                                      kDebug,
                                                      "SLURM_JOB_ID",
                                                      "PBS_JOBID",
                                                      "PBS_VERSION",
                                                      "CUDA_VISIBLE_DEVICES",
                                                      "CUDA_MPS_PIPE_DIRECTORY",
                                                      "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"};

}  // namespace sharedgpu::environment
