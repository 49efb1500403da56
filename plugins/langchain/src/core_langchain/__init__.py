"""LangChain's chat and decision models on any backend of core.

::

    from core_langchain import ChatCore, CoreDecisions

    ChatCore(model="smollm2-135m-instruct", max_tokens=64).invoke("Name three rivers.")
"""

from core_langchain.chat import ChatCore
from core_langchain.decisions import CoreDecisions

__all__ = ["ChatCore", "CoreDecisions"]
