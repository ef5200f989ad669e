"""What a training job and an evaluation job do with the layout: sessions, logging, hand-over, evaluation, reading."""
