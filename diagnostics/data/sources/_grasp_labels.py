"""GraSP's labels, by number and as its files write them, and other wordings of each."""

from __future__ import annotations

from collections.abc import Mapping

from diagnostics.data.sources._tracks import spoken

__all__ = ["ALIASES", "INSTRUMENTS", "PHASES", "STEPS"]

PHASES = (
    "Idle", "LPIL", "RPIL", "Retzius_Space", "Dorsal_Venous_Complex", "Id_Bladder_Neck",
    "Seminal_Vesicles", "Denonvilliers_Fascia", "Pedicle_Control", "Severing_Prostate_Urethra",
    "Bladder_Neck_Rec",
)  # fmt: skip

STEPS = (
    "Idle", "Id_Illiac_Vein_Artery", "Dissection_Illiac_Lymph_Nodes", "Dissection_Obturator_Lymph_Nodes",
    "Pack_Lymph_Nodes", "Prevessical_Dissection", "Ligation_Dorsal_Venous_Complex", "Prostate_Dissection",
    "Seminal_Vessicle_Dissection", "Denon_Dissection", "Cut_Prostate", "Hold_Prostate", "Pack_Prostate",
    "Pass_Suture_Urethra", "Pass_Suture_Neck", "Pull_Suture", "Tie_Suture", "Suction", "Cut",
    "Cut_Bladder", "Clip_Pedicles",
)  # fmt: skip

INSTRUMENTS = (
    "Bipolar Forceps", "Prograsp Forceps", "Large Needle Driver", "Monopolar Curved Scissors",
    "Suction Instrument", "Clip Applier", "Laparoscopic Grasper",
)  # fmt: skip

ALIASES: Mapping[str, Mapping[str, str]] = {
    "phases": spoken(
        PHASES,
        {
            "LPIL": ("left pelvic isolated lymphadenectomy", "left pelvic lymphadenectomy"),
            "RPIL": ("right pelvic isolated lymphadenectomy", "right pelvic lymphadenectomy"),
            "Retzius_Space": (
                "developing the space of retzius",
                "development of the space of retzius",
                "space of retzius",
            ),
            "Dorsal_Venous_Complex": (
                "ligation of the deep dorsal venous complex",
                "ligation of the dorsal venous complex",
                "dorsal venous complex ligation",
            ),
            "Id_Bladder_Neck": (
                "bladder neck identification",
                "bladder neck identification and transection",
                "identification of the bladder neck",
            ),
            "Seminal_Vesicles": (
                "seminal vesicle dissection",
                "seminal vesicles dissection",
                "dissection of the seminal vesicles",
            ),
            "Denonvilliers_Fascia": (
                "development of the plane between the prostate and rectum",
                "denonvilliers' fascia",
                "denonvilliers fascia dissection",
                "dissection of denonvilliers' fascia",
            ),
            "Pedicle_Control": ("prostatic pedicle control", "control of the pedicles"),
            "Severing_Prostate_Urethra": (
                "severing of the prostate from the urethra",
                "severing the prostate from the urethra",
                "prostate-urethra severing",
            ),
            "Bladder_Neck_Rec": ("bladder neck reconstruction", "reconstruction of the bladder neck"),
        },
    ),
    "steps": spoken(
        STEPS,
        {
            "Id_Illiac_Vein_Artery": (
                "identification and dissection of the iliac vein and artery",
                "id iliac vein artery",
                "identification of the iliac vein and artery",
            ),
            "Dissection_Illiac_Lymph_Nodes": (
                "dissection iliac lymph nodes",
                "dissection of the iliac lymph nodes",
                "cutting and dissection of the external iliac vein's lymph node",
            ),
            "Dissection_Obturator_Lymph_Nodes": ("dissection of the obturator lymph nodes",),
            "Pack_Lymph_Nodes": ("insert the lymph nodes in retrieval bags", "packing the lymph nodes"),
            "Prevessical_Dissection": ("prevesical dissection",),
            "Ligation_Dorsal_Venous_Complex": (
                "ligation of the dorsal venous complex",
                "dorsal venous complex ligation",
            ),
            "Prostate_Dissection": (
                "prostate dissection until the levator ani",
                "dissection of the prostate",
            ),
            "Seminal_Vessicle_Dissection": (
                "seminal vesicle dissection",
                "dissection of the seminal vesicles",
            ),
            "Denon_Dissection": ("dissection of denonvilliers' fascia", "denonvilliers dissection"),
            "Cut_Prostate": ("cut the tissue between the prostate and the urethra", "cutting the prostate"),
            "Hold_Prostate": ("holding the prostate",),
            "Pack_Prostate": ("insert prostate in retrieval bag", "packing the prostate"),
            "Pass_Suture_Urethra": ("pass suture to the urethra", "passing the suture through the urethra"),
            "Pass_Suture_Neck": (
                "pass suture to the bladder neck",
                "passing the suture through the bladder neck",
                "pass suture bladder neck",
            ),
            "Pull_Suture": ("pulling the suture",),
            "Tie_Suture": ("tying the suture",),
            "Cut": ("cut suture or tissue", "cutting suture or tissue"),
            "Cut_Bladder": ("cut between the prostate and bladder neck", "cutting the bladder"),
            "Clip_Pedicles": ("vascular pedicle control", "clipping the pedicles"),
        },
    ),
    "instruments": spoken(
        INSTRUMENTS,
        {
            "Prograsp Forceps": ("prograsp",),
            "Large Needle Driver": ("needle driver",),
            "Monopolar Curved Scissors": ("curved scissors", "monopolar scissors"),
            "Suction Instrument": ("suction",),
        },
    ),
}
