"""Models of CatBoost, LightGBM and XGBoost, seen alike: raw predictions at several numbers of trees."""
