"""What type checkers see of `core`; made by tests/test_public_names.py."""

from core import aio as aio
from core import testing as testing
from core.api import backend_status as backend_status
from core.api import backends as backends
from core.api import default_backend as default_backend
from core.api import discover as discover
from core.api import get_backend as get_backend
from core.api import load_model as load_model
from core.api import register as register
from core.errors import AmbiguousBackendError as AmbiguousBackendError
from core.errors import BackendError as BackendError
from core.errors import BackendImportError as BackendImportError
from core.errors import BackendProcessError as BackendProcessError
from core.errors import BackendUnavailableError as BackendUnavailableError
from core.errors import CalibrationError as CalibrationError
from core.errors import ChatTemplateError as ChatTemplateError
from core.errors import ConversionError as ConversionError
from core.errors import CoreError as CoreError
from core.errors import EmptyPromptError as EmptyPromptError
from core.errors import EvaluationError as EvaluationError
from core.errors import GenerationCancelled as GenerationCancelled
from core.errors import GenerationTimeout as GenerationTimeout
from core.errors import InvalidModelError as InvalidModelError
from core.errors import InvalidOptionError as InvalidOptionError
from core.errors import LabelError as LabelError
from core.errors import ModelAccessError as ModelAccessError
from core.errors import ModelBusyError as ModelBusyError
from core.errors import ModelClosedError as ModelClosedError
from core.errors import ModelError as ModelError
from core.errors import ModelNotFoundError as ModelNotFoundError
from core.errors import OptionError as OptionError
from core.errors import OutOfMemoryError as OutOfMemoryError
from core.errors import OutputError as OutputError
from core.errors import PromptTooLongError as PromptTooLongError
from core.errors import ProtocolMismatchError as ProtocolMismatchError
from core.errors import RequestError as RequestError
from core.errors import TaskError as TaskError
from core.errors import TokenizerError as TokenizerError
from core.errors import TrainingError as TrainingError
from core.errors import UnknownBackendError as UnknownBackendError
from core.errors import UnsupportedModelError as UnsupportedModelError
from core.errors import UnsupportedOperationError as UnsupportedOperationError
from core.errors import UnsupportedOptionError as UnsupportedOptionError
from core.extensions import Adapting as Adapting
from core.extensions import Asynchronous as Asynchronous
from core.extensions import AsyncStream as AsyncStream
from core.extensions import AttentionInspector as AttentionInspector
from core.extensions import BatchStreaming as BatchStreaming
from core.extensions import ClassifyStreaming as ClassifyStreaming
from core.extensions import Declaring as Declaring
from core.extensions import DeviceReporting as DeviceReporting
from core.extensions import Explaining as Explaining
from core.extensions import HiddenStates as HiddenStates
from core.extensions import MemoryReporting as MemoryReporting
from core.extensions import ModelFinding as ModelFinding
from core.extensions import ModelProbe as ModelProbe
from core.extensions import Scoring as Scoring
from core.extensions import Submitting as Submitting
from core.extensions import Tokenizing as Tokenizing
from core.extensions import TokenPrompts as TokenPrompts
from core.extensions import Trainable as Trainable
from core.kit.base import TextModelBase as TextModelBase
from core.kit.base import TokenStreamBase as TokenStreamBase
from core.kit.chat import RenderedPrompt as RenderedPrompt
from core.options import CancelToken as CancelToken
from core.options import ClassifyOptions as ClassifyOptions
from core.options import GenerateConfig as GenerateConfig
from core.options import GenerateOptions as GenerateOptions
from core.options import LoadConfig as LoadConfig
from core.options import LoadOptions as LoadOptions
from core.options import RequestOptions as RequestOptions
from core.protocols import PROTOCOL_VERSION as PROTOCOL_VERSION
from core.protocols import Backend as Backend
from core.protocols import Capability as Capability
from core.protocols import TextModel as TextModel
from core.protocols import TokenStream as TokenStream
from core.registry import BackendEntry as BackendEntry
from core.secret import Secret as Secret
from core.training import TrainConfig as TrainConfig
from core.training import TrainingExample as TrainingExample
from core.training import TrainingRun as TrainingRun
from core.training import TrainStep as TrainStep
from core.types import AttentionSnapshot as AttentionSnapshot
from core.types import BackendStatus as BackendStatus
from core.types import BatchResult as BatchResult
from core.types import Choice as Choice
from core.types import ClassifyResult as ClassifyResult
from core.types import Device as Device
from core.types import DiscoveredModel as DiscoveredModel
from core.types import GenerateMetrics as GenerateMetrics
from core.types import HiddenResult as HiddenResult
from core.types import MemoryReport as MemoryReport
from core.types import Message as Message
from core.types import ModelInfo as ModelInfo
from core.types import Score as Score
from core.types import Token as Token
from core.types import TokenSequence as TokenSequence

__version__: str
__all__ = [
    "PROTOCOL_VERSION",
    "Adapting",
    "AmbiguousBackendError",
    "AsyncStream",
    "Asynchronous",
    "AttentionInspector",
    "AttentionSnapshot",
    "Backend",
    "BackendEntry",
    "BackendError",
    "BackendImportError",
    "BackendProcessError",
    "BackendStatus",
    "BackendUnavailableError",
    "BatchResult",
    "BatchStreaming",
    "CalibrationError",
    "CancelToken",
    "Capability",
    "ChatTemplateError",
    "Choice",
    "ClassifyOptions",
    "ClassifyResult",
    "ClassifyStreaming",
    "ConversionError",
    "CoreError",
    "Declaring",
    "Device",
    "DeviceReporting",
    "DiscoveredModel",
    "EmptyPromptError",
    "EvaluationError",
    "Explaining",
    "GenerateConfig",
    "GenerateMetrics",
    "GenerateOptions",
    "GenerationCancelled",
    "GenerationTimeout",
    "HiddenResult",
    "HiddenStates",
    "InvalidModelError",
    "InvalidOptionError",
    "LabelError",
    "LoadConfig",
    "LoadOptions",
    "MemoryReport",
    "MemoryReporting",
    "Message",
    "ModelAccessError",
    "ModelBusyError",
    "ModelClosedError",
    "ModelError",
    "ModelFinding",
    "ModelInfo",
    "ModelNotFoundError",
    "ModelProbe",
    "OptionError",
    "OutOfMemoryError",
    "OutputError",
    "PromptTooLongError",
    "ProtocolMismatchError",
    "RenderedPrompt",
    "RequestError",
    "RequestOptions",
    "Score",
    "Scoring",
    "Secret",
    "Submitting",
    "TaskError",
    "TextModel",
    "TextModelBase",
    "Token",
    "TokenPrompts",
    "TokenSequence",
    "TokenStream",
    "TokenStreamBase",
    "TokenizerError",
    "Tokenizing",
    "TrainConfig",
    "TrainStep",
    "Trainable",
    "TrainingError",
    "TrainingExample",
    "TrainingRun",
    "UnknownBackendError",
    "UnsupportedModelError",
    "UnsupportedOperationError",
    "UnsupportedOptionError",
    "backend_status",
    "backends",
    "default_backend",
    "discover",
    "get_backend",
    "load_model",
    "register",
]
