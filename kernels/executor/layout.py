"""Layouts of the executor's native records: byte offsets of int64 words.

This module imports nothing, because Python uses it too. All records are in memory owned by Python, start on a
cache line and are zeroed once. An address of 0 means "none". Only the holder of the engine's lock may access
a word, unless it is marked: *static* words are written by Python before the first launch and never again;
*atomic* words are accessed outside the lock, as comments there explain.

    Variable   a first-in first-out queue of requests; the granted prefix is one writer or a run of readers,
               behind which requests of a lane of an asynchronous device may be granted softly (`issue`)
    Request    the entry of an argument in a variable's queue, for one launch
    Task       a kernel over a range of units, or a Python callable, in one launch
    Instance   one launch in flight: its tasks, requests and argument blocks
    Lane       a queue of ready tasks and the threads that serve it: kernels of one device, or Python tasks
    Thread     a worker, or a Python thread that waits and helps
    Engine     the lock, the lanes and the launches in flight
    Direct     a small program that runs without a launch (`direct`)
"""

from __future__ import annotations

NEVER = (1 << 63) - 1  # a deadline or a limit in the infinite future

# Access bits of an argument. Arguments with the same variable share one request, with the bits of all of
# them.
NUMBER = 0
READS = 1  # requires the content; a launch that reads a poisoned variable fails
WRITES = 2  # exclusive
POISONS = 4  # a failed launch leaves undefined content behind

# Numbers of lanes. Other numbers identify devices (`tracejit.device_kinds`), whose tasks are kernels.
HOST = -1
COMMUNICATION = -2

LEFT = -1 << 62
"""The status of a kernel that a thread left between two iterations of a loop; also its TASK_STATUS.

The kernel continues when it is called with ``lo = 1``, on any thread.
"""

# Results of `launch`.
FINISHED = 0
QUEUED = 1
FAILED = 2
NEEDS_SCRATCH = 3

# Conditions that a thread can wait for (THREAD_KIND).
WRITTEN = 0  # all writes of a variable that were enrolled when the wait began
UNUSED = 1  # nothing enrolled on a variable
LAUNCH = 2  # one launch
ALL = 3  # all launches that were enrolled when the wait began
AGAIN = -1  # the condition of the thread's last wait

SLICE = 50_000_000  # nanoseconds after which a Python thread returns to handle signals

# States of ENGINE_PAUSED.
RUNNING = 0
PAUSED = 1  # no thread takes a task or continues a native one
HALTED = 2  # moreover, no thread that ends a task changes the queues

# States of THREAD_IDLE.
AWAKE = 0
SPINNING = 1
ASLEEP = 2

# --- Variable: one cache line -------------------------------------------------------------------------------
VARIABLE_HEAD = 0  # oldest request
VARIABLE_TAIL = 8  # newest request
VARIABLE_PUSHED = 16  # writers ever enrolled
VARIABLE_DONE = 24  # writers ever released
VARIABLE_POISON = 32  # sequence of the launch whose failure left the content undefined, or 0
VARIABLE_FAILURE = 40  # sequence of a failed launch that kept the content; a wait clears it
VARIABLE_OWNER = 48  # during an enrolment: the request of the same launch, to detect aliases
VARIABLE_WAITERS = 56  # threads inside `wait` for this variable
VARIABLE_BYTES = 64

# --- Request: two cache lines -------------------------------------------------------------------------------
REQUEST_ACCESS = 0  # static: access bits of the argument
REQUEST_USERS = 8  # static: address of the indices of the tasks that use the argument
REQUEST_USER_COUNT = 16  # static
REQUEST_INSTANCE = 24  # static
REQUEST_VARIABLE = 32
REQUEST_ROOT = 40  # the request in the queue: itself or its first alias; 0 if the argument needs no ordering
REQUEST_ALIAS = 48  # next request with the same root
REQUEST_BITS = 56  # root: access bits of all aliases
REQUEST_LEFT = 64  # root: number of uses by tasks that have not finished
REQUEST_GRANTED = 72  # root
REQUEST_NEXT = 80  # root: neighbours in the variable's queue
REQUEST_PREVIOUS = 88
REQUEST_SOFT = 96  # root: the lane whose tasks need not wait for the requests before it; or 0
REQUEST_ISSUED = 104  # root: the lane on which all tasks of its launch are issued; or 0
REQUEST_BYTES = 128

# --- Task: four cache lines ---------------------------------------------------------------------------------
TASK_FUNCTION = 0  # static: address of the kernel; of a Python task 0, or of the plan that native code runs
TASK_BLOCK = 8  # static: address of its argument block
TASK_UNITS = 16  # static
TASK_CHUNK = 24  # static: units per call of the kernel
TASK_CHUNKS = 32  # static: number of such calls
TASK_SUCCESSORS = 40  # static: address of the indices of the tasks that depend on it
TASK_SUCCESSOR_COUNT = 48  # static
TASK_USES = 56  # static: address of the indices of the arguments that it uses
TASK_USE_COUNT = 64  # static
TASK_BEFORE = 72  # static: number of tasks on which it depends
TASK_PRIORITY = 80  # static during a launch
TASK_LANE = 88  # static: address of its lane
TASK_INSTANCE = 96  # static
TASK_LABEL = 104  # static: label in the profiler's events
TASK_REVERSED = 112  # whether its chunks are claimed in reverse order
TASK_ALWAYS = 120  # static: it runs although its launch has failed; of a device: it can fail
TASK_UNMET = 128  # number of predecessors and grants that are missing
TASK_ACTIVE = 136  # number of threads that run its chunks
TASK_STATUS = 144  # smallest nonzero status of its chunks; LEFT if it must be continued
TASK_LISTED = 152  # whether it is in the list of started tasks
TASK_CHILD = 160  # heap links
TASK_SIBLING = 168
TASK_PREVIOUS = 176  # links in the list of started tasks
TASK_NEXT = 184
TASK_CLAIMED = 192  # atomic: number of claimed chunks of each share; a cache line of its own
TASK_BYTES = 256

SHARES = 8
"""The number of shares into which the chunks of a task are divided. A share is a run of neighbouring chunks,
and is empty if there are too few chunks.

A thread first claims the chunks of its home share, in order. If threads alternated between neighbouring
chunks, each processor would prefetch lines that the other one writes. Moreover, the caches of a processor
contain the rows that its thread wrote in the previous task, whether that was a product or a map.
"""

RUNS = 8
"""The maximum number of runs of neighbouring chunks in a share whose order is reversed.

Every second task of several chunks is run in reverse order, so that a thread begins with the data in its L2
cache: its shares are claimed in reverse order, and so are the runs of each share. Within a run the order is
kept, because processors prefetch from one chunk into the next.
"""

# --- Instance -----------------------------------------------------------------------------------------------
INSTANCE_ENGINE = 0  # static
INSTANCE_TASKS = 8  # static: address of the first task
INSTANCE_TASK_COUNT = 16  # static
INSTANCE_REQUESTS = 24  # static: address of the first request
INSTANCE_ARGUMENT_COUNT = 32  # static
INSTANCE_BLOCK = 40  # static: address of slot 0 of the argument blocks
INSTANCE_PATCHES = 48  # static: address of (slot, argument, addend) triples
INSTANCE_PATCH_COUNT = 56  # static
INSTANCE_SCRATCH = 64  # static: bytes of scratch memory that its kernels need
INSTANCE_SMALL = 72  # static: whether it may run inside `launch`
INSTANCE_PASSES = 80  # static: if none of its tasks can fail: the one asynchronous lane of all of them; or 0
INSTANCE_SEQUENCE = 128  # number of this launch; also identifies its failure
INSTANCE_LEFT = 136  # number of tasks that have not finished
INSTANCE_ERROR = 144  # 0, its own sequence, or the sequence of the failure that poisoned an input
INSTANCE_FAILED_TASK = 152  # index
INSTANCE_STATUS = 160  # of the failed task
INSTANCE_NEWER = 168  # neighbours among the launches in flight
INSTANCE_OLDER = 176
INSTANCE_NEXT_FINISHED = 184
INSTANCE_UNISSUED = 192  # number of tasks that have not been issued
INSTANCE_BYTES = 256

# --- Thread -------------------------------------------------------------------------------------------------
THREAD_CONDITION = 0  # pthread_cond_t, opaque
THREAD_LIST = 128  # address of the head of the list of idle threads that contains it
THREAD_NEXT = 136  # neighbours in this list
THREAD_PREVIOUS = 144
THREAD_STOP = 152  # atomic: whether the thread must return to Python
THREAD_LIMIT = 160  # sequence of the newest launch of which it takes tasks
THREAD_DEADLINE = 168  # when it leaves a long task; 0: SLICE after it first checks (accessed only by itself)
THREAD_KIND = 176  # the condition that it waits for
THREAD_OBJECT = 184
THREAD_TARGET = 192
THREAD_SCRATCH = 200  # accessed only by itself: scratch memory, which Python replaces if it is too small
THREAD_SCRATCH_BYTES = 208
THREAD_NEED = 216  # bytes of scratch memory that a task required
THREAD_NUMBER = 224  # static: number in the profiler's events
THREAD_TIME = 232  # struct timespec
THREAD_HOME = 248  # static: the share of a task that it begins with
THREAD_IDLE = 256  # atomic: AWAKE, SPINNING or ASLEEP; a cache line of its own
THREAD_PROCESSOR = 320  # its processor when it became idle
THREAD_SYSTEM = 328  # static: a worker's thread ID in the system; 0 if its affinity is never changed
THREAD_EXCLUDED = 336  # 1 + the processor that is excluded from its affinity until it runs again; or 0
THREAD_LANE = 344  # static: the lane of a worker; 0 if it waits and helps all lanes of kernels
THREAD_BYTES = 384

# --- Header before scratch memory ---------------------------------------------------------------------------
SCRATCH_ENGINE = -16  # static
SCRATCH_THREAD = -8  # static: the thread that owns it; 0 if the thread must never leave a kernel
SCRATCH_HEAD = 64  # bytes

# --- Event of the profiler ----------------------------------------------------------------------------------
EVENT_LABEL = 0
EVENT_THREAD = 8
EVENT_START = 16  # monotonic clock, nanoseconds
EVENT_END = 24
EVENT_LAUNCH = 32  # sequence
EVENT_BYTES = 40

# --- Lane: two cache lines ----------------------------------------------------------------------------------
LANE_READY = 0  # heap of tasks that may run
LANE_STARTED = 8  # list of started tasks with unclaimed chunks
LANE_DEMAND = 16  # number of chunks made ready since threads were last woken
LANE_DEMAND_SEQUENCE = 24  # sequence of the newest launch of these chunks
LANE_IDLE = 32  # list of its idle threads
LANE_WORKERS = 40  # number of running workers
LANE_REVERSED = 48  # whether the chunks of the next task of several chunks are claimed in reverse order
LANE_NEXT = 56  # the next lane of the same kind, in order of creation
LANE_PYTHON = 64  # static: whether its tasks are Python callables
LANE_DEVICE = 72  # static: address of the asynchronous device that runs its tasks; or 0
LANE_ISSUED = 80  # list of the tasks issued to this device, oldest first
LANE_ISSUED_LAST = 88
LANE_WATCHER = 96  # list of idle threads: the thread that waits for the device
LANE_BYTES = 128

# --- Engine -------------------------------------------------------------------------------------------------
ENGINE_LOCK = 0  # pthread_mutex_t, opaque
ENGINE_SEQUENCE = 128  # launches ever enrolled
ENGINE_LANES = 136  # list of the lanes of kernels, device 0 first
ENGINE_PYTHON_LANES = 144  # list of the lanes of Python tasks
ENGINE_WAITERS_IDLE = 184  # list of threads
ENGINE_OLDEST = 200  # launches in flight
ENGINE_NEWEST = 208
ENGINE_FINISHED = 216  # finished instances that Python has not seen yet
ENGINE_PAUSED = 224  # atomic: RUNNING, PAUSED or HALTED
ENGINE_ACTIVE = 232  # number of threads that run native tasks
ENGINE_WORKERS = 240  # minimum number of running workers of a lane; if 0, a waiting thread takes any task
ENGINE_SPIN = 248  # nanoseconds
ENGINE_EVENTS = 256  # ring of events, or 0
ENGINE_EVENT_CAPACITY = 264
ENGINE_EVENT_COUNT = 272  # number of events ever recorded
ENGINE_PYTHON_COUNT = 280  # number of ready Python tasks
ENGINE_TEAM = 288  # static: address of the team's record
ENGINE_CROWDED = 296  # 1: the workers use all processors of this process, so waiting threads run no tasks
ENGINE_PROCESSORS = 320  # an affinity mask, see `threads.keep_apart`
PROCESSORS_BYTES = 128
ENGINE_BYTES = 448

# --- Team: see `team` ---------------------------------------------------------------------------------------
TEAM_LEADER = 0  # atomic: the thread whose loop the team runs; or 0
TEAM_INVITATIONS = 8  # number of open invitations to helpers
TEAM_SCRATCH = 16  # bytes of scratch memory that a helper needs
TEAM_PRESENT = 64  # atomic: number of helpers that are present; a cache line of its own
TEAM_TASK = 128  # atomic: number of the task
TEAM_FUNCTION = 136  # written before the claims, by the leader
TEAM_BLOCK = 144
TEAM_UNITS = 152
TEAM_CHUNK = 160
TEAM_MEMBERS = 168  # number of shares into which the chunks are divided
TEAM_DONE = 192  # atomic: number of chunks that have been run; a cache line of its own
TEAM_STATUS = 200  # atomic: smallest nonzero status of the chunks
TEAM_CLAIMS = 256  # atomic: MEMBERS claims, each in a cache line
CLAIM_BYTES = 64
MEMBERS = 8  # maximum number of members, with the leader
TEAM_BYTES = 768

# --- Direct call: Python writes the record before the first use ---------------------------------------------
DIRECT_PATCHES = 0  # address of patches
DIRECT_PATCH_COUNT = 8
DIRECT_TASKS = 16  # address of tasks
DIRECT_TASK_COUNT = 24
DIRECT_SCRATCH = 32  # address of scratch memory
DIRECT_BYTES = 40

PATCH_BYTES = 32  # address of the slot; index of the argument; NUMBER or READS; addend
DIRECT_TASK_BYTES = 32  # function, address of the argument block, units, chunk

NUMPY_DATA = 16  # offset in the CPython object of a NumPy array: the address of its first element

# --- Asynchronous device: static except for the scratch memory ----------------------------------------------
DEVICE_CONTEXT = 0
DEVICE_STREAM = 8
DEVICE_SCRATCH = 16  # address in the device's memory
DEVICE_SET_CURRENT = 24  # addresses of functions of the driver
DEVICE_LAUNCH = 32
DEVICE_RECORD = 40
DEVICE_SYNCHRONIZE = 48
DEVICE_COPY_IN = 56
DEVICE_COPY_OUT = 64
DEVICE_COPY_WITHIN = 72
DEVICE_SET_NODE = 80
DEVICE_LAUNCH_GRAPH = 88
DEVICE_BYTES = 96

# --- Argument block of a task of an asynchronous device -----------------------------------------------------
ISSUED_EVENT = 0  # of the instance
ISSUED_FAILURE = 8  # of the instance: address of a word that host and device access, if it can fail; or 0
ISSUED_STATE = 16  # whether it has been issued to the device
ISSUED_DEVICE = 24  # static: address of the device
ISSUED_FUNCTION = 32  # static: the function that the driver launches; of a copy:
ISSUED_COPY_KIND = 32  # static: IN, OUT or WITHIN
ISSUED_GRID_X = 40  # static
ISSUED_COPY_TO = 40
ISSUED_GRID_Y = 48  # static
ISSUED_COPY_FROM = 48
ISSUED_THREADS_X = 56  # static
ISSUED_COPY_SIZE = 56  # static
ISSUED_THREADS_Y = 64  # static
ISSUED_SHARED = 72  # static: bytes of shared memory of a block of threads
ISSUED_EXTRA = 80  # five words that the driver reads
ISSUED_SIZE = 120  # static: bytes of the parameters
ISSUED_PARAMETERS = 128

IN, OUT, WITHIN = 0, 1, 2  # kinds of copies

# --- Argument block of a task that is a graph of kernels: after ISSUED_DEVICE -------------------------------
GRAPH_EXECUTABLE = 32  # of the instance
GRAPH_SETTERS = 40  # static: number of nodes whose parameters are set for each launch
GRAPH_FIRST = 48  # the consecutive records of these nodes

# Record of such a node.
NODE_BYTES = 0  # static: size of the record
NODE_HANDLE = 8  # static
NODE_PARAMETERS = 16  # static except for one word: the driver's structure CUDA_KERNEL_NODE_PARAMS
NODE_ARGUMENTS = 56  # a member of this structure: the address of the addresses of the arguments
NODE_ARGUMENT = 88  # the address of the only argument
NODE_BLOCK = 96  # the argument: words of the block of `gpu.kernel_graph.set_blocks`

# Slots of that block.
SETTER_WORDS = 0  # address of the words for failures
SETTER_FAILING = 1  # number of these words
SETTER_ADDRESSES = 2  # address of the addresses to which the values are written
SETTER_COUNT = 3  # number of values
SETTER_VALUES = 4  # the first value; in the first node it is the address of the status

# Slots of the block of `gpu.kernel_graph.tell`.
FINISH_WORDS, FINISH_COUNT, FINISH_TARGET = 0, 1, 2

RANK = 1 << 40
"""The status of a failed graph is RANK times the number of the failed task among the tasks that can fail,
plus the status of this task.
"""
