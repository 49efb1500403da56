"""scikit-learn estimators on the labels of a local model.

::

    classifier = LabelClassifier("smollm2-135m-instruct", "{text} This news is about", level="L1")
    cross_val_score(classifier, texts, labels)
"""

from core.api import close_shared_models as close_models
from core_sklearn.classifier import LabelClassifier
from core_sklearn.features import LogProbFeatures

__all__ = ["LabelClassifier", "LogProbFeatures", "close_models"]
