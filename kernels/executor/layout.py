"""Layouts of the executor's native records: byte offsets of int64 words. Imports nothing; Python uses it too.

All records live in memory owned by Python, start on a cache line and are zeroed once. An address of 0 means
"none". A word may be accessed by the holder of the engine's lock, unless it is marked. *static* words are
written by Python before the first launch and never again; *atomic* words are accessed outside the lock, see
the lines that do it.

    Variable   a first-in first-out queue of requests; the granted prefix is one writer or a run of readers,
               behind which requests of a lane with a clock of its own may pass softly (`issued`)
    Request    one argument's place in a variable's queue, for one launch
    Task       a kernel over a range of units, or a Python callable, in one launch
    Instance   one launch in flight: its tasks, requests and argument blocks
    Lane       a queue of ready tasks and the threads that serve it: kernels of one device, or Python tasks
    Thread     a worker, or a Python thread that waits and helps
    Engine     the lock, the lanes and the launches in flight
    Direct     a small program that runs without a launch (`direct`)
"""

from __future__ import annotations

NEVER = (1 << 63) - 1  # a deadline or a limit that is never reached

# Access bits of an argument. Two arguments with one variable are one request with both arguments' bits.
NUMBER = 0
READS = 1  # needs the content; a launch that reads a poisoned variable fails
WRITES = 2  # exclusive
POISONS = 4  # a failed launch leaves undefined content behind

# Numbers of lanes; others are those of devices (`tracejit.device_kinds`), whose tasks are kernels.
HOST = -1
COMMUNICATION = -2

LEFT = -1 << 62
"""The status of a kernel that was left between two rounds of a loop: it goes on when it is called with ``lo =
1``, on any thread. So a task has TASK_STATUS then."""

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
AGAIN = -1  # the condition of its last wait

SLICE = 50_000_000  # nanoseconds after which a thread of Python's returns to handle signals

# States of ENGINE_PAUSED.
RUNNING = 0
PAUSED = 1  # no thread takes a task, or continues a native one
HALTED = 2  # no thread that ends a task changes the queues either

# States of THREAD_IDLE.
AWAKE = 0
SPINNING = 1
ASLEEP = 2

# --- Variable: one cache line -------------------------------------------------------------------------------
VARIABLE_HEAD = 0  # oldest request
VARIABLE_TAIL = 8  # newest request
VARIABLE_PUSHED = 16  # writers ever enrolled
VARIABLE_DONE = 24  # writers ever released
VARIABLE_POISON = 32  # sequence of the launch whose failure left garbage here, or 0
VARIABLE_FAILURE = 40  # sequence of a failed launch that kept the content; a wait clears it
VARIABLE_OWNER = 48  # during an enrolment: the request of the same launch, to find aliases
VARIABLE_WAITERS = 56  # threads inside `wait` for this variable
VARIABLE_BYTES = 64

# --- Request: two cache lines -------------------------------------------------------------------------------
REQUEST_ACCESS = 0  # static: access bits of the argument
REQUEST_USERS = 8  # static: address of the indices of the tasks that use the argument
REQUEST_USER_COUNT = 16  # static
REQUEST_INSTANCE = 24  # static
REQUEST_VARIABLE = 32
REQUEST_ROOT = 40  # the request that stands in the queue: itself, or its first alias; 0 orders nothing
REQUEST_ALIAS = 48  # next request with the same root
REQUEST_BITS = 56  # root: access bits of all aliases
REQUEST_LEFT = 64  # root: uses by tasks that have not finished
REQUEST_GRANTED = 72  # root
REQUEST_NEXT = 80  # root: neighbours in the variable's queue
REQUEST_PREVIOUS = 88
REQUEST_SOFT = 96  # root: the lane whose tasks need not wait for what stands before it; or 0
REQUEST_ISSUED = 104  # root: the lane on which all tasks of its launch are issued; or 0
REQUEST_BYTES = 128

# --- Task: four cache lines ---------------------------------------------------------------------------------
TASK_FUNCTION = 0  # static: address of the kernel; of a Python task 0, or what machine code runs it by
TASK_BLOCK = 8  # static: address of its argument block
TASK_UNITS = 16  # static
TASK_CHUNK = 24  # static: units per call of the kernel
TASK_CHUNKS = 32  # static: number of such calls
TASK_SUCCESSORS = 40  # static: address of the indices of the tasks that come after
TASK_SUCCESSOR_COUNT = 48  # static
TASK_USES = 56  # static: address of the indices of the arguments it needs
TASK_USE_COUNT = 64  # static
TASK_BEFORE = 72  # static: number of tasks that come before
TASK_PRIORITY = 80  # static during a launch
TASK_LANE = 88  # static: address of its lane
TASK_INSTANCE = 96  # static
TASK_LABEL = 104  # static: what the profiler records
TASK_REVERSED = 112  # whether its chunks are taken from the other end
TASK_ALWAYS = 120  # static: it runs although its launch has failed; of a device: it can fail
TASK_UNMET = 128  # tasks and grants still missing
TASK_ACTIVE = 136  # threads inside it
TASK_STATUS = 144  # smallest nonzero status of its chunks; LEFT if it is to go on
TASK_LISTED = 152  # whether it stands in the list of started tasks
TASK_CHILD = 160  # heap links
TASK_SIBLING = 168
TASK_PREVIOUS = 176  # links in the list of started tasks
TASK_NEXT = 184
TASK_CLAIMED = 192  # atomic: chunks handed out of each share; a cache line of its own
TASK_BYTES = 256

SHARES = 8
"""A task's chunks fall into this many shares of neighbours, some of them empty if there are fewer chunks. A
thread first takes the chunks of its home share in order. If threads alternated between neighbouring chunks,
each processor would prefetch lines that the other one writes. A thread also finds in its caches what it wrote
in the task before, be it the rows of a product or of a map.
"""

RUNS = 8
"""Every other task of several chunks is taken from the other end, so that a thread begins with the contents
of its L2 cache: its shares in reverse order, and in each of them at most this many runs of neighbours, which
stay in order, as processors prefetch from one chunk into the next.
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
INSTANCE_SMALL = 72  # static: may run inside `launch`
INSTANCE_PASSES = 80  # static: the lane of all its tasks, none of which can fail, if it has a clock; or 0
INSTANCE_SEQUENCE = 128  # number of this launch; also the name of its failure
INSTANCE_LEFT = 136  # tasks that have not finished
INSTANCE_ERROR = 144  # 0, its own sequence, or the sequence of the failure that poisoned an input
INSTANCE_FAILED_TASK = 152  # index
INSTANCE_STATUS = 160  # of the failed task
INSTANCE_NEWER = 168  # neighbours among the launches in flight
INSTANCE_OLDER = 176
INSTANCE_NEXT_FINISHED = 184
INSTANCE_UNISSUED = 192  # tasks that have not been issued
INSTANCE_BYTES = 256

# --- Thread -------------------------------------------------------------------------------------------------
THREAD_CONDITION = 0  # pthread_cond_t, opaque
THREAD_LIST = 128  # the list of idle threads it stands in (address of the list's head)
THREAD_NEXT = 136  # neighbours there
THREAD_PREVIOUS = 144
THREAD_STOP = 152  # atomic: the thread shall return to Python
THREAD_LIMIT = 160  # it takes no task of a later launch than this
THREAD_DEADLINE = 168  # when it leaves a long task; 0: SLICE after it first asks (its own word)
THREAD_KIND = 176  # the condition that it waits for
THREAD_OBJECT = 184
THREAD_TARGET = 192
THREAD_SCRATCH = 200  # its own words: scratch memory, replaced by Python when too small
THREAD_SCRATCH_BYTES = 208
THREAD_NEED = 216  # bytes it lacked
THREAD_NUMBER = 224  # static: what the profiler records
THREAD_TIME = 232  # struct timespec
THREAD_HOME = 248  # static: the share of a task that it begins with
THREAD_IDLE = 256  # atomic: AWAKE, SPINNING or ASLEEP; a cache line of its own
THREAD_PROCESSOR = 320  # its processor when it became idle
THREAD_SYSTEM = 328  # static: a worker's number in the system; 0 if its affinity is never changed
THREAD_BARRED = 336  # 1 more than the processor excluded from its affinity until it runs again; or 0
THREAD_LANE = 344  # static: the lane that it works for; 0 if it waits, and helps all lanes of kernels
THREAD_BYTES = 384

# --- Scratch memory: in front of it -------------------------------------------------------------------------
SCRATCH_ENGINE = -16  # static
SCRATCH_THREAD = -8  # static: the thread that it belongs to; 0 if it must never leave a kernel
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
LANE_STARTED = 8  # list of running tasks with chunks left
LANE_DEMAND = 16  # chunks made ready since threads were last woken
LANE_DEMAND_SEQUENCE = 24  # the newest launch among them
LANE_IDLE = 32  # list of its idle threads
LANE_WORKERS = 40  # number of running workers
LANE_REVERSED = 48  # whether the next task of several chunks is taken from the other end
LANE_NEXT = 56  # the lane of the same sort that was made after this one
LANE_PYTHON = 64  # static: whether its tasks are Python callables
LANE_DEVICE = 72  # static: address of the device with a clock of its own that runs its tasks; or 0
LANE_ISSUED = 80  # list of the tasks that this device has, oldest first
LANE_ISSUED_LAST = 88
LANE_WATCHER = 96  # list of idle threads: the one that waits for the device
LANE_BYTES = 128

# --- Engine -------------------------------------------------------------------------------------------------
ENGINE_LOCK = 0  # pthread_mutex_t, opaque
ENGINE_SEQUENCE = 128  # launches ever enrolled
ENGINE_LANES = 136  # list of the lanes of kernels, that of device 0 first
ENGINE_PYTHON_LANES = 144  # list of the others
ENGINE_WAITERS_IDLE = 184  # list of threads
ENGINE_OLDEST = 200  # launches in flight
ENGINE_NEWEST = 208
ENGINE_FINISHED = 216  # finished instances that Python has not seen yet
ENGINE_PAUSED = 224  # atomic: RUNNING, PAUSED or HALTED
ENGINE_ACTIVE = 232  # threads inside native tasks
ENGINE_WORKERS = 240  # least number of running workers of a lane; if 0, a thread that waits takes any task
ENGINE_SPIN = 248  # nanoseconds
ENGINE_EVENTS = 256  # ring of events, or 0
ENGINE_EVENT_CAPACITY = 264
ENGINE_EVENT_COUNT = 272  # events ever recorded
ENGINE_PYTHON_COUNT = 280  # Python tasks that may run
ENGINE_TEAM = 288  # static: address of the team's record
ENGINE_CROWDED = 296  # 1: the workers take all processors of this process, so threads that wait run nothing
ENGINE_PROCESSORS = 320  # a set of them, see `threads.keep_apart`
PROCESSORS_BYTES = 128
ENGINE_BYTES = 448

# --- Team: see `team` ---------------------------------------------------------------------------------------
TEAM_LEADER = 0  # atomic: the thread whose loop it helps with; or 0
TEAM_WANTED = 8  # helpers that are invited and have not come
TEAM_SCRATCH = 16  # bytes of scratch memory that they need
TEAM_PRESENT = 64  # atomic: helpers that have come; a cache line of its own
TEAM_TASK = 128  # atomic: number of the task
TEAM_FUNCTION = 136  # written before the claims, by the leader
TEAM_BLOCK = 144
TEAM_UNITS = 152
TEAM_CHUNK = 160
TEAM_MEMBERS = 168  # the chunks fall into so many shares
TEAM_DONE = 192  # atomic: chunks that have been run; a cache line of its own
TEAM_STATUS = 200  # atomic: smallest nonzero status of the chunks
TEAM_CLAIMS = 256  # atomic: MEMBERS claims, each in a cache line
CLAIM_BYTES = 64
MEMBERS = 8  # at most
TEAM_BYTES = 768

# --- Direct call: written by Python before its first use ----------------------------------------------------
DIRECT_PATCHES = 0  # address of patches
DIRECT_PATCH_COUNT = 8
DIRECT_TASKS = 16  # address of tasks
DIRECT_TASK_COUNT = 24
DIRECT_SCRATCH = 32  # address of scratch memory
DIRECT_BYTES = 40

PATCH_BYTES = 32  # address of the slot; index of the argument; NUMBER or READS; addend
DIRECT_TASK_BYTES = 32  # function, address of the argument block, units, chunk

NUMPY_DATA = 16  # in CPython's object of a NumPy array: the address of its first element

# --- Device with a clock of its own: static but for the scratch memory --------------------------------------
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

# --- Argument block of a task of such a device --------------------------------------------------------------
ISSUED_EVENT = 0  # of the instance
ISSUED_FAILURE = 8  # of the instance: address of a word that both sides see, if the task can fail; or 0
ISSUED_STATE = 16  # whether the device has it
ISSUED_DEVICE = 24  # static: address of the device
ISSUED_FUNCTION = 32  # static: what the driver launches; or copies:
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

# --- Argument block of a task that is a graph of kernels: from ISSUED_DEVICE on -----------------------------
GRAPH_EXECUTABLE = 32  # of the instance
GRAPH_SETTERS = 40  # static: how many nodes get new parameters for each launch
GRAPH_FIRST = 48  # the records of these, one after the other

# Record of such a node.
NODE_BYTES = 0  # static: of the record
NODE_HANDLE = 8  # static
NODE_PARAMETERS = 16  # static but for one word: what the driver calls CUDA_KERNEL_NODE_PARAMS
NODE_ARGUMENTS = 56  # in there: where the addresses of the arguments are
NODE_ARGUMENT = 88  # the address of the only argument
NODE_BLOCK = 96  # the argument: words of the block of `gpu.kernel_graph.set_blocks`

# Slots of that block.
SETTER_WORDS = 0  # address of the words for failures
SETTER_FAILING = 1  # their number
SETTER_PLACES = 2  # address of the addresses to which the values go
SETTER_COUNT = 3  # number of values
SETTER_VALUES = 4  # from here on; the first one of the first node is where the status goes

# Slots of the block of `gpu.kernel_graph.tell`.
FINISH_WORDS, FINISH_COUNT, FINISH_TARGET = 0, 1, 2

RANK = 1 << 40
"""The status of a graph: the number of the task that failed, of those that can, times this, plus its own."""
