from tracejit.codegen.spec import Spec


def emit_cuda(spec: Spec) -> str:
    raise NotImplementedError
